/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_DRIVER_H
#define CUDAW_WRAPPER_DRIVER_H
/*
 * The driver face: libcuda.so.1 as programs see it.
 *
 * Every export is a trampoline (tramp.h) through a table that libcuda_bind() fills on the first
 * call: with the real driver's function, or with ours if driver.calls says so. gen_calls.py makes
 * the typed code for ours from cuda.h:
 *
 *	call_NAME	passes the gate and calls the real function, or hook_NAME
 *	hook_NAME	hand-written, in the files of wrapper/hooks: called inside the gate, except
 *			those of the classes "bare" and "image"
 *	real.NAME	the real function, for the hooks
 *	checked_NAME	passes the gate, checks its pointers and calls the real function
 *	translated_NAME	passes the gate, rewrites its pointers and calls the real function; or calls
 *			hook_NAME
 *	served_NAME	passes the gate and calls managed_NAME (managed.h), for managed memory that is
 *			served from host memory
 *
 * While a mode is on (modes.h), the functions of the mode are bound, so that a mode that is off
 * costs nothing.
 *
 * The real driver answers cuGetProcAddress, and its answer is then swapped by address, so that each
 * ABI version of a function has its own hook, and functions that cudaw does not know pass through.
 * The program gets the exported function, as from the driver: a library that patches it, as UCX does,
 * so sees the calls of the CUDA runtime too, and cuInit() can still bind another function, when the
 * devices decide whether addresses are translated.
 *
 * docs/internals/threads.md lists the locks that are held across calls into the real driver, which
 * never calls back into this face.
 */
#include "wrapper/real.h"

/* The functions that are bound instead while a mode is on (modes.h), or NULL. */
struct mode_call {
	void *images, *checked, *translated, *managed;
};

/* In the order of the export list (generated). */
extern const struct driver_call driver_calls[];
extern const struct mode_call mode_calls[];

/* Our function in place of the real driver's @fn, or @fn itself. */
void *driver_swap(void *fn);

#endif
