/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNALS_H
#define CUDAW_SIGNALS_H
/*
 * The signals that pause and resume, shared with the program.
 *
 * CUDAW_SIGNAL_PAUSE (SIGUSR1) and CUDAW_SIGNAL_RESUME (SIGUSR2) take a name with or without SIG,
 * a number, or "none". Our handler is installed when the library is loaded, so that a signal that
 * comes before the first CUDA call is kept instead of killing the program. The handler notes the
 * wish, wakes the control thread if there is one, and calls the program's own handler.
 *
 * While the program has a handler of its own for a signal that no variable names, the signal is the
 * program's alone: it may write a checkpoint then, before its end, and must not be paused for that. One
 * that a variable names is both. Each of the two signals is decided alone; SIG_DFL and SIG_IGN are no
 * handlers.
 *
 * The program's handlers are found by interposing sigaction() and all other functions of libc that
 * set an action (signals_set.c), as the JDK's libjsig does: the kernel keeps our handler, with the
 * mask and flags that the program asked for, and the program sees its own. A one-shot handler
 * (SA_RESETHAND) is reset before it runs: to the default action in the kernel, or, for a signal
 * that pauses or resumes, to ours alone. One signal cannot do both: if the two variables name the
 * same signal, it pauses, and no signal resumes.
 *
 * SIGTERM and SIGINT are wrapped in the same way while the program handles them. After either, no
 * allocation waits for others' memory (growth.h), so that the program gets on. After SIGTERM a program that
 * is paused may need its memory for its end, to save a checkpoint, say. SIGINT changes nothing of a
 * pause, as it may interrupt a cell of a notebook; nor does SIGHUP, which is not wrapped: it often means
 * "read your configuration again".
 *
 * A child that shares our memory (forks.h) has actions of its own in the kernel: its calls go to
 * the kernel, and our handler notes nothing in it. libc's system() and system calls of the program
 * go past us; sigaction() reports an action that only the kernel has too. If a program ignores a
 * signal that pauses or resumes, an execve() of it or of its child ends that: the kernel has our
 * handler, and resets the signal to its default.
 *
 * Without interposition (the library was loaded by dlopen after libc) a handler that the program
 * installs later replaces ours; the control socket still works then.
 *
 * SIGTSTP is taken from when the process uses CUDA, only while its action is the default, and only if the
 * program's own calls see that action. A SIGCONT leaves no trace, but it takes back all stop signals that pend.
 * So the handler sends SIGTTIN to the control thread, which blocks it: as long as it pends, no SIGCONT has come.
 *
 * The variables are ignored in a set-uid program. The handler makes no CUDA call and does nothing
 * that is not async-signal-safe. The only lock, of sigaction(), is held with all signals blocked.
 */

#include <stdbool.h>
#include <sys/types.h>

enum signal_wish { WISH_NONE, WISH_PAUSE, WISH_RESUME, WISH_STOP };

enum signal_stop {
	STOP_CONTINUED,        /* SIGCONT has ended the stop, or came before it began */
	STOP_IGNORED,          /* the kernel ignores SIGTSTP here, but SIGSTOP may follow */
	STOP_IGNORED_FOR_GOOD, /* none follows: the terminal has sent it, or the program itself */
};

/* Install the handlers. Once, when the library is loaded. */
void signals_init(void);

/* The signal for @wish; 0: none. */
int signals_for(enum signal_wish wish);

/* True if the kernel still has our handler for @sig. */
bool signals_is_installed(int sig);

/* True if @sig is the program's alone: it handles it, and no variable names it. */
bool signals_is_the_programs(int sig);

/* Who sent a signal, in our PID namespace; 0: it is not known. */
struct signal_sender {
	pid_t pid;
	uid_t uid;
};

/* The last wish since the previous call, and whose. */
enum signal_wish signals_take_wish(struct signal_sender *sender);

/* Take SIGTSTP from now on. The control thread, which then makes the calls below. */
void signals_await_stop(void);

/* True if SIGTSTP has come since the last time. */
bool signals_take_stop(void);

/* After it: true if no SIGCONT has followed. */
bool signals_stop_is_wanted(void);

/* The same as if SIGTSTP had come just now. */
void signals_want_stop(void);

/* Take the default action of SIGTSTP, or @surely of SIGSTOP, which returns when the process goes on. */
enum signal_stop signals_stop(bool surely);

/* The program runs, or may: forget the signal. */
void signals_end_stop(void);

/* True if a handler of the program for SIGTERM has been called since the last time. */
bool signals_take_end(void);

/* The same for SIGTERM or SIGINT. */
bool signals_take_interrupt(void);

#endif
