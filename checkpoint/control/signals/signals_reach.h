/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNALS_REACH_H
#define CUDAW_SIGNALS_REACH_H
/*
 * Whether the signals that pause and resume reach our handler. A program can prevent that: by a
 * system call of its own that sets another action, or if all its threads block the signals, as they
 * do before sigwait() or signalfd(). Our threads and the driver's block all signals and do not
 * count.
 *
 * A look at a signal that reaches us takes two system calls and one or two files of /proc. A thread
 * may block signals for a moment, so a signal that does not reach us is looked at again, for
 * SIGNALS_REACH_MS in all.
 */
#include <stdbool.h>
#include <stddef.h>

#define SIGNALS_REACH_MS   30
#define SIGNALS_REACH_TEXT 256

/* True if one of the signals cannot reach us; @text then says which, and why. Control thread. */
bool signals_unreachable(char *text, size_t size);

#endif
