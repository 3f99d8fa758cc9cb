/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROCESS_H
#define CUDAW_PROCESS_H
/*
 * Who a process is, and signals that reach that process alone.
 *
 * A number names a process only as long as that runs: another one may have the number a moment
 * later. So a process is its PID and its start time. A signal goes through a descriptor of the
 * process (pidfd_open(2)), which is compared with both after it was opened.
 *
 * All PIDs are those of the PID namespace of this command, unless a name says "own".
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid;
	pid_t own_pid;  /* in the PID namespace that it lives in; the same where that is ours */
	uint64_t start; /* clock ticks since boot */
	uid_t uid;      /* its real user */
	bool one_user;  /* effective, saved and file system user are the same */
	char state;     /* as in ps(1) */
};

/*
 * Find out who has the number @pid now. False where no process has it, or where /proc does not show
 * processes by our numbers (it is not mounted, or of another PID namespace).
 */
bool process_find(pid_t pid, struct process *process);

/* Whether @process runs still: its number is not free, nor another one's. */
bool process_is_there(const struct process *process);

/* Whether @owner may do with it as he likes: all its users are @owner, or that is root. */
bool process_is_of(const struct process *process, uid_t owner);

/*
 * Send @signal to @process, and to no other, if it is of @owner still. Returns 0 or a negative
 * errno: -ESRCH where it has ended, -EPERM where it is another user's by now, -ENOSYS where the
 * kernel is older than 5.3 or a filter forbids pidfd_open().
 */
int process_signal(const struct process *process, uid_t owner, int signal);

/* Whether process_signal() works here. */
bool process_can_signal(void);

#endif
