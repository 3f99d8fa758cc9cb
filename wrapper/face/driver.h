/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_DRIVER_H
#define CUDAW_WRAPPER_DRIVER_H
/*
 * The driver face: libcuda.so.1 as programs see it.
 *
 * Every export is a trampoline (tramp.h) through a table that driver_bind fills on the first call:
 * with the real driver's function, or with ours where driver.calls says so. gen_calls.py makes the
 * typed code of the latter from cuda.h:
 *
 *	call_NAME	passes the gate and calls the real function, or hook_NAME
 *	hook_NAME	hand-written, in the files of wrapper/hooks: called inside the gate, but for the
 *			"bare" and "image" ones
 *	real.NAME	the real function, for the hooks
 *	checked_NAME	passes the gate, checks its pointers and calls the real function
 *	translated_NAME	the same, but rewrites them; or hook_NAME
 *
 * While a mode is on (modes.h) other functions are bound than else, so that what it costs is paid
 * by nobody else.
 *
 * cuGetProcAddress is answered by the real driver and then swapped by the returned address, so that
 * each ABI version of a function is met by its own hook, and functions that we do not know pass
 * through. While it is not decided yet whether addresses are translated, which the devices tell
 * after cuInit(), it is answered with the exported function where that will matter: one more jump.
 *
 * docs/architecture.md lists the locks that are held across calls into the real driver, which never
 * calls back into this face.
 */
#include "wrapper/real.h"

/* What comes in place of that while a mode is on (modes.h), or NULL. */
struct mode_call {
	void *images, *checked, *translated;
};

/* In the order of the export list (generated). */
extern const struct driver_call driver_calls[];
extern const struct mode_call mode_calls[];

/* Our function in place of the real driver's @fn, or @fn itself. */
void *driver_swap(void *fn);

#endif
