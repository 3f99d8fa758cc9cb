/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_H
#define CUDAW_CONTROL_H
/*
 * Who decides when to pause and to resume: one control thread a process, started at the first
 * successful cuInit() and never before. It ends with the process, and not before. It sleeps in
 * poll(2) on
 *	- a pipe, written by the signal handlers (signals.h) and by an operation that ends,
 *	- the control socket and its clients (server.h).
 *
 * Its parts, none of which knows the loop in control.c:
 *	state.h  what is wanted and what is: takes events, gives back actions
 *	operation.h      an operation of the engine, in a thread of its own, so that the control thread
 *			 can answer "status" and show progress meanwhile
 *	server.h         connections and lines
 *	request.h        what a line asks for
 *	answers.h        what is said to it
 *
 * Fork: the child has no control thread and, where CUDA was in use, refuses CUDA calls as the
 * driver does. Exit: calls are refused instead of waiting at a closed gate.
 */
#include "vmem/driver.h"

/* Start the control thread, once a process; later calls do nothing. Any thread may call it. */
void control_start(const struct cuda_driver *drv);

#endif
