/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CRIU_H
#define CUDAW_CRIU_H
/*
 * Runs CRIU (https://criu.org), which makes images of processes and starts processes from them:
 * the program CUDAW_CRIU, or "criu" in PATH.
 *
 * 4.1 or later: 3.17, as in Debian 12, fails on Linux 6.18 at its vDSO. CRIU runs without its
 * plugins: the one for CUDA would repeat the work of cudaw.
 */
#include "tools/process/criu/tree.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct criu {
	char path[PATH_MAX];
	int major, minor;
	char work[160]; /* a directory for its log, in TMPDIR; it stays when something failed */
	char why[512];  /* the failure, after "CRIU: " if CRIU reports it */
	bool killed;    /* the last one that ran */
	bool again;     /* it was a connection to the job, which may be over a moment later */
};

/*
 * Find it, ask its version, and check that it has the capabilities that it needs. False with
 * criu->why if no suitable one is found.
 */
bool criu_find(struct criu *criu);

/* Whether CRIU may take and restore TCP connections (TCP_REPAIR, tcp(7)). False with criu->why. */
bool criu_may_repair(struct criu *criu);

/* The same, and for root whether CRIU may take the jobs of all users. False with criu->why. */
bool criu_may_carry_all(struct criu *criu);

/*
 * Whether CRIU may take the processes of @tree: if one has another user or group than the caller, CRIU needs
 * CAP_SYS_RESOURCE (prlimit(2)); if one has a filter of system calls, it needs CAP_SYS_ADMIN, and must have no such
 * filter itself (PTRACE_O_SUSPEND_SECCOMP, ptrace(2)) [CRIU 4.2, seen]. False with criu->why.
 */
bool criu_may_take(struct criu *criu, const struct tree *tree);

struct criu_what {
	pid_t root; /* of the processes */
	/* If all are stopped, so that none ends but by being killed: after tree_await_stop(). Else NULL. */
	const struct tree *stopped;
	pid_t job;      /* if they are not: the one of them that must not end */
	bool connected; /* by TCP, with each other: tcp_rest() has returned true */
};

/*
 * Make an image of the process what->root and all below it in the directory open as @images, which is
 * shown as @path. They run on, or stay stopped if they were. False with criu->why; then too,
 * unless CRIU was killed; and if criu->again, nothing of the attempt stays. If one of them ends meanwhile and CRIU does
 * not end by itself, CRIU is killed.
 */
bool criu_dump(struct criu *criu, int images, const char *path, const struct criu_what *what);

/*
 * Block Ctrl-C and the like (@hold) while an interrupt would leave processes half done, or unblock
 * them. And whether one of them has come meanwhile.
 */
void criu_hold_signals(bool hold);
bool criu_is_interrupted(void);

/* Let @handler take these signals, except those that are ignored, as by nohup(1). */
void criu_handle_signals(void (*handler)(int signal));

/*
 * Start the processes of the image in @images, as above, which are @connected by TCP; they are stopped, as by SIGSTOP.
 * False with criu->why; then none was started.
 */
bool criu_restore(struct criu *criu, int images, const char *path, bool connected);

#endif
