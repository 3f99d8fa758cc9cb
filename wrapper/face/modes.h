/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_MODES_H
#define CUDAW_WRAPPER_MODES_H
/*
 * What the user asked for beyond pause and resume. The face binds the functions of a mode
 * (driver.calls) when it binds: a mode that is off costs nothing. Only that addresses have to be
 * translated may turn out later, at cuInit(), where the user did not say how they are to be had.
 *
 *	CUDAW_CHECK=1		pointers are checked before the GPU sees them (check.h)
 *	CUDAW_CHECK=warn	the same, but what is wrong is only said
 *	CUDAW_ADDRESSING=translated	pointers are rewritten (rewrite.h, vmem/translate.h)
 */
enum mode {
	MODE_IMAGES = 1, /* follow the GPU code that is loaded: whatever must know a launch */
	MODE_CHECK = 2,
	MODE_TRANSLATED = 4,
};

/* The modes that the environment asks for, as bits. Says what it does not understand. */
unsigned int modes_read(void);

#endif
