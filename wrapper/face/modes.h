/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_MODES_H
#define CUDAW_WRAPPER_MODES_H
/*
 * The modes that a user can ask for beyond pause and resume. The face binds the functions of a mode
 * (driver.calls) on the first call: a mode that is off costs nothing. Translation alone may begin
 * later, at cuInit(), if the user did not choose an addressing.
 *
 *	CUDAW_CHECK=1		pointers are checked before the GPU sees them (check.h)
 *	CUDAW_CHECK=warn	the same, but a wrong pointer is only reported
 *	CUDAW_CHECK=strict	the same, but each call with a wrong pointer fails
 *	CUDAW_ADDRESSING=translated	pointers are rewritten (before.h, vmem/addresses/translate.h)
 *	CUDAW_MANAGED=host	managed memory is host memory (wrapper/hooks/managed/managed.h)
 */
enum mode {
	MODE_IMAGES = 1, /* follow the GPU code that is loaded: for modes that look at launches */
	MODE_CHECK = 2,
	MODE_TRANSLATED = 4,
	MODE_MANAGED = 8,
};

/* The modes that the environment asks for, as bits. */
unsigned int modes_read(void);

#endif
