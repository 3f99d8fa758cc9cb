/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROCESS_H
#define CUDAW_PROCESS_H
/*
 * The identity of a process, and signals that reach only this process.
 *
 * A PID names a process only while the process runs: another process may get it a moment later.
 * So a process is identified by its PID and its start time. A signal goes through a descriptor of
 * the process (pidfd_open(2)), which is compared with both after it was opened.
 *
 * All PIDs are those of the PID namespace of this command, unless a name says "own".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid;
	pid_t own_pid;  /* in its own PID namespace; the same as pid if that is ours */
	uint64_t start; /* clock ticks since boot */
	uid_t uid;      /* its real user */
	bool one_user;  /* effective, saved and file system user are the same */
	char state;     /* as in ps(1) */
};

/*
 * Find the process that has the PID @pid now. False if no process has it, or if /proc does not show
 * our PIDs (it is not mounted, or belongs to another PID namespace).
 */
bool process_find(pid_t pid, struct process *process);

/* Whether @pid is one of the @n in @pids. */
bool process_is_among(pid_t pid, const pid_t *pids, size_t n);

/*
 * Whether no process or thread can be made with this id, also by clone3(2): one has it, the kernel has not let go of it
 * yet after one has ended, or processes are in the session or process group of one that has ended. For the last two
 * kill(2) says ESRCH, and /proc shows nothing [Linux 6.18]. True also if nobody can tell, as without a free descriptor.
 */
bool process_id_is_taken(pid_t id);

/* Its name, as comm of proc(5), cleaned; "?": not known. Unlike the command line, it is never memory of the process. */
#define PROCESS_NAME 64

const char *process_name(pid_t pid, char name[PROCESS_NAME]);

/* Whether @process still runs: its PID is neither free nor that of another process. */
bool process_is_there(const struct process *process);
/* It has ended, or begun to: its files may be closed, and it may still have memory. */
bool process_ends(const struct process *process);

/* Milliseconds since @process was started. */
double process_age_ms(const struct process *process);

/* Whether @owner may control it: @owner is root, or all user ids of @process are @owner. */
bool process_is_of(const struct process *process, uid_t owner);

/*
 * A descriptor of @process, which can be read when it has ended, or a negative errno: -ESRCH if it has ended, a shortage
 * (common/system/shortage.h), -ENOSYS as process_signal().
 */
int process_open(const struct process *process);

/*
 * Send @signal to @process, and to no other process, if it still belongs to @owner. Returns 0 or a
 * negative errno: -ESRCH if it has ended, a shortage, -EPERM if it belongs to another user now, -ENOSYS if the
 * kernel is older than 5.3 or a seccomp filter forbids pidfd_open().
 */
int process_signal(const struct process *process, uid_t owner, int signal);

/*
 * Use files as the user @uid does, in the calling thread, until it is called with geteuid(). False: the process may
 * not, and nothing has changed.
 */
bool process_act_as(uid_t uid);

/*
 * Let this process, and what it starts, have as many descriptors as it may (RLIMIT_NOFILE): a job of several processes
 * needs more than the usual 1024.
 */
void process_allow_descriptors(void);

/* Whether process_signal() works here; and why it does not. */
#define PROCESS_CANNOT_SIGNAL \
	"expected /proc and Linux 5.3 or later (pidfd_open), which signals to processes need"
bool process_can_signal(void);

#endif
