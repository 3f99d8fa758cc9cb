/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNALS_H
#define CUDAW_SIGNALS_H
/*
 * The signals that pause and resume, shared with the program.
 *
 * CUDAW_SIGNAL_PAUSE (SIGUSR1) and CUDAW_SIGNAL_RESUME (SIGUSR2) take a name with or without SIG,
 * a number, or "none". Our handler is installed when the library is loaded, so that a signal that
 * comes before the first CUDA call is kept instead of killing the program. The handler notes the
 * wish, wakes the control thread where there is one, and calls the program's own handler.
 *
 * The program's handlers are found by interposing sigaction() and all other functions of libc that
 * set an action (signals_set.c), as the JDK's libjsig does: the kernel keeps our handler, with the
 * mask and flags that the program asked for, and the program sees its own. A one-shot handler
 * (SA_RESETHAND) is reset before it runs: to the default action in the kernel, or, for a signal
 * that pauses or resumes, to ours alone. One signal cannot do both: where the two variables name
 * the same, none resumes.
 *
 * SIGTERM and SIGINT are wrapped in the same way while the program handles them, because a handler
 * that wants to end the program must be able to do so while the program's threads wait at the gate.
 * SIGHUP is not: to programs that handle it, it says "read your configuration again".
 *
 * A child that shares our memory (forks.h) has the kernel's actions for its own: its calls go to
 * the kernel, and our handler notes nothing in it. An action of the program that the kernel alone
 * has is told as well, as libc's system() and the program's own system calls go past us. A program
 * that ignores a signal that pauses or resumes does so no more when it, or a child, becomes another
 * program: the kernel has our handler, and such a signal is at its default then.
 *
 * Without interposition (the library was loaded by dlopen after libc) a handler that the program
 * installs later replaces ours; the control socket still works then.
 *
 * The variables are ignored in a set-uid program. No CUDA, and nothing that is not
 * async-signal-safe in a handler; the one lock, of sigaction(), is held with all signals blocked.
 */

#include <stdbool.h>

enum signal_wish { WISH_NONE, WISH_PAUSE, WISH_RESUME };

/* Install the handlers. Once, when the library is loaded. */
void signals_init(void);

/* The signal for @wish; 0: none. */
int signals_for(enum signal_wish wish);

/* Whether the kernel has our handler for @sig still. */
bool signals_is_installed(int sig);

/* From now on write one byte to @fd whenever a wish or a request to end is noted; -1: stop. */
void signals_notify(int fd);

/* The last wish since the previous call. */
enum signal_wish signals_take_wish(void);

/* True once for each time that a handler of the program for SIGTERM or SIGINT ran. */
int signals_take_end(void);

#endif
