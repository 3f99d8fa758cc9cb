/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_H
#define CUDAW_CONTROL_H
/*
 * The control thread decides when to pause and to resume. Each process has one, from its first
 * successful cuInit() until it ends. The thread sleeps in poll(2) on
 *	- a pipe (wake.h), written by the signal handlers (signals.h) and by an operation that ends,
 *	- the control socket and its clients (server.h).
 *
 * control.c has the loop, and the start of the thread. The parts do not know the loop; each uses
 * only parts below it (make check-layers):
 *	clients.h	lines of clients become events
 *	signals_take.h	signals become events
 *	stop.h		SIGTSTP: the GPU is freed before the process stops
 *	turn.h		the daemon that lets jobs take turns, a client that this process connects to
 *	job.h		the job's state and last results; carries out actions
 *	operation.h	an operation of the engine, in a thread of its own, so that the control
 *			thread can answer "status" and show progress meanwhile
 *	answers.h	the answers to clients
 *	state.h		takes events, gives back actions: all decisions
 *	request.h	a line, parsed
 *	server.h	connections and lines
 *	wake.h		the pipe
 *
 * Fork: the child has no control thread and, where CUDA was in use, refuses CUDA calls as the
 * driver does. Exit: a call that waits at the closed gate is refused after a while.
 */
#include "vmem/cuda_driver.h"

/* Start the control thread, once a process; later calls do nothing. Any thread may call it. */
void control_start(const struct cuda_driver *drv);

#endif
