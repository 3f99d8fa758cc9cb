/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_MODES_H
#define CUDAW_WRAPPER_MODES_H
/*
 * What the user asked for beyond pause and resume. The face binds the functions of a mode
 * (driver.calls) when it binds, and never later: a mode that is off costs nothing.
 */
enum mode {
	MODE_IMAGES = 1, /* follow the GPU code that is loaded: for whatever must know a launch */
};

/* The modes that the environment asks for, as bits. */
unsigned int modes_read(void);

#endif
