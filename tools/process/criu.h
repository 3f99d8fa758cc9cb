/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CRIU_H
#define CUDAW_CRIU_H
/*
 * CRIU (https://criu.org), which makes images of processes and starts processes from them:
 * CUDAW_CRIU or "criu" in PATH. It is run as a program of its own.
 *
 * 4.1 or later: 3.17, as in Debian 12, fails on Linux 6.18 at its vDSO. Its plugins are left out:
 * the one for CUDA would want to do what is done already.
 */
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct criu {
	char path[PATH_MAX];
	int major, minor;
	char work[160]; /* a directory for its log, in TMPDIR; it stays when something failed */
	char why[512];  /* what went wrong, after "CRIU: " where CRIU says so */
};

/*
 * Find it, ask its version, and see whether it has the capabilities that it needs. False with
 * criu->why where there is none that will do.
 */
bool criu_find(struct criu *criu);

/*
 * Make an image of the process @pid and its children in the directory open as @images, which is
 * shown as @path, and leave them running, or stopped where @stop. False with criu->why; then they
 * run on, but where it was CRIU that was ended. If @pid ends meanwhile, CRIU is ended, too, where
 * it does not end by itself.
 */
bool criu_dump(struct criu *criu, int images, const char *path, pid_t pid, bool stop);

/*
 * Have Ctrl-C and the like wait while processes would be left half way, or no more. SIGPIPE is
 * ignored from the first time on.
 */
void criu_hold_signals(bool hold);

/*
 * Start the processes of the image in @images, as above. False with criu->why; then there are none.
 */
bool criu_restore(struct criu *criu, int images, const char *path);

#endif
