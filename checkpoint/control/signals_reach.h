/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNALS_REACH_H
#define CUDAW_SIGNALS_REACH_H
/*
 * Whether the signals that pause and resume reach us. A program can keep them away: by a system
 * call of its own that sets another action, or where all its threads block them, as before
 * sigwait() or signalfd(). Our threads, and the driver's, block all signals and do not count.
 *
 * One look at a program that keeps nothing away is two system calls and a file or two of /proc. A
 * thread may block signals for a moment, so what seems kept away is looked at again, for
 * SIGNALS_REACH_MS in all.
 */
#include <stdbool.h>
#include <stddef.h>

#define SIGNALS_REACH_MS   30
#define SIGNALS_REACH_TEXT 256

/*
 * Whether a signal of ours cannot reach us; @text then says which, and why. For the control thread.
 */
bool signals_unreachable(char *text, size_t size);

#endif
