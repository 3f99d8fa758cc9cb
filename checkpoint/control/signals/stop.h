/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_STOP_H
#define CUDAW_STOP_H
/*
 * SIGTSTP, of a program that leaves its action at the default: first the GPU is freed, then the process stops.
 * A terminal sends it (Ctrl-Z), and a scheduler that suspends jobs (Slurm).
 *
 * A job that takes turns asks the daemon, which takes the memory of all of its processes and gives none before
 * the process goes on. Without a daemon this process pauses. If neither is done in 5 s (CUDAW_TSTP_TIMEOUT), or cannot
 * be done, the process stops all the same, and a line on stderr says so.
 *
 * SIGCONT ends it at any time, as does a resume. The job then runs when it gets its memory, or its turn, unless
 * its user has paused it.
 *
 * In an orphaned process group the kernel ignores SIGTSTP. Slurm sends it to such processes, too, and SIGSTOP
 * some seconds later; so the GPU stays free for a while, and if neither SIGSTOP nor SIGCONT has come by then,
 * the job goes on.
 *
 * Only the control thread calls it.
 */

/* Take the signal from now on. */
void stop_begin(void);

/* At the end of a turn of the control thread, when clients have been told what is new. */
void stop_look(void);

/* How long to sleep at most when nothing happens; -1: no limit. */
double stop_patience_ms(void);

#endif
