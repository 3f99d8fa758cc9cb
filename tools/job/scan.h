/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SCAN_H
#define CUDAW_SCAN_H
/*
 * Finds jobs by their processes, in /proc: those whose runtime directory this command does not see
 * or does not know (a private /tmp, another mount namespace, another CUDAW_RUNTIME_DIR), and those
 * that have not made a CUDA call yet, and so have no socket.
 *
 * A child process looks at them (tools/process/inside.h, limited.h). If it hangs at a process, that
 * process is left out with a message, and a new child goes on with the next. After SCAN_HANGS of
 * one user, this user's other processes are left out as well; after SCAN_HANGS_IN_ALL, those of all
 * users, since one person may have many (subuid(5)).
 */
#include "common/protocol/rundir.h"
#include "tools/process/inside.h"
#include "tools/process/process.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define SCAN_HANGS        3
#define SCAN_HANGS_IN_ALL 16

enum sighting_kind {
	SIGHTING_KNOWN,    /* a job that was known before */
	SIGHTING_JOB,      /* it listens in directory */
	SIGHTING_STARTING, /* our library is mapped, and it does not listen */
	SIGHTING_PAST,     /* so, and it has opened a driver: past our library, it seems */
};

struct sighting {
	enum sighting_kind kind;
	struct process process;
	/* Cleaned (format_copy()). From the environment that it was started with; empty: none. */
	char id[RUNDIR_ID_SIZE], name[128];
	char command[256];
	char directory[PATH_MAX]; /* as the process sees it; not cleaned */
	struct inside_drivers drivers;
};

struct scan {
	uid_t owner;      /* whose processes; RUNDIR_ANYONE */
	const char *only; /* those with this runtime directory; NULL: all */
	bool (*is_known)(const void *arg, const struct process *process);
	const void *arg;

	struct sighting *found; /* by scan_run(), in the order of PIDs; free(3) it */
	size_t n;
};

/* Look at all processes. Returns 0 or a negative errno. */
int scan_run(struct scan *scan);

/*
 * Whether found[@i], which is starting, stands for itself: no job has its ID or is its ancestor or
 * descendant, and no other starting process is its ancestor or has its ID before it.
 */
bool scan_stands_alone(const struct scan *scan, size_t i);

/* Say in @buf what a process with a driver past our library does, or may do if it is @starting. */
#define SCAN_PAST_TEXT 700

const char *scan_past_text(const char *past, bool starting, char buf[SCAN_PAST_TEXT]);

/* inside_connect() in a child with a time limit. A hang counts as those of the scan do. */
int scan_connect(const struct process *process, const char *directory);

/*
 * The value of @name in the environment that @process was started with, in @buf; empty: none. Also
 * read in a child, because the memory may be backed by a file system of the user's.
 */
void scan_environment(const struct process *process, const char *name, char *buf, size_t size);

/*
 * Whether @process, which has our library as all below 'cudaw run', has overwritten that environment, as setproctitle()
 * does. False if that cannot be read.
 */
bool scan_is_overwritten(const struct process *process);

#endif
