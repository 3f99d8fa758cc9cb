/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_THREAD_H
#define CUDAW_THREAD_H
/*
 * What the driver keeps for each thread, as far as the calls of the thread have shown it: the upper
 * part of its stack of contexts, the device of the current one, and its mode towards stream captures.
 * At rest the thread is answered from here, and what it changes is changed here: its next call that
 * enters the gate tells the driver first.
 *
 * The CUDA runtime asks for the current context in many of its calls, so a query of an event needs
 * these answers as well.
 *
 * The stack may also be changed through tables of the driver (cuGetExportTable()). If a
 * context turns out to have changed unseen, no thread is answered from here any more.
 */

/* A call that is about to return may have changed the calling thread's current context. */
void thread_forget_context(void);

#endif
