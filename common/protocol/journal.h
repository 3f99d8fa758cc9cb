/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOURNAL_H
#define CUDAW_JOURNAL_H
/*
 * The journal of a runtime directory (rundir.h): who asked for what of the user's jobs, and what came of it.
 * Jobs write to it, and 'cudaw snapshot'. 'cudaw events' shows it, and whoever waits for a job watches the file.
 *
 *	events		mode 0600; one JSON object a line, each written in one piece; lines may be empty
 *	events.1	the older part: when the file has JOURNAL_BYTES, it gets this name
 *
 * So it has at most twice as many bytes. Its owner can write anything into it: it informs, and proves nothing. An
 * event that cannot be written is lost; a watcher of the file wakes up all the same, as it was opened for writing.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define JOURNAL       "events"
#define JOURNAL_OLD   "events.1"
#define JOURNAL_BYTES (1 << 20)
#define JOURNAL_LINE  8192 /* the longest line, newline included */

#define JOURNAL_COMMAND 201

/*
 * Requests: pause, resume, snapshot. Outcomes: paused; freed: nothing of a paused process is on the GPU any more;
 * saved: a snapshot of it is complete; running: it was paused, and runs; failed.
 */
#define JOURNAL_MAP(X)          \
	X(PAUSE, "pause")       \
	X(RESUME, "resume")     \
	X(SNAPSHOT, "snapshot") \
	X(PAUSED, "paused")     \
	X(FREED, "freed")       \
	X(SAVED, "saved")       \
	X(RUNNING, "running")   \
	X(FAILED, "failed")

#define JOURNAL_ENUM(id, word) JOURNAL_##id,
enum journal_kind { JOURNAL_MAP(JOURNAL_ENUM) JOURNAL_KINDS };
#undef JOURNAL_ENUM

extern const char *const journal_words[JOURNAL_KINDS];

/* Who asks, as the writer sees it. */
struct journal_by {
	uid_t uid;
	pid_t pid;                     /* 0: not known */
	char command[JOURNAL_COMMAND]; /* its command line, cut; empty: not known */
};

struct journal_event {
	enum journal_kind kind;
	pid_t pid;                   /* of the process, in its own PID namespace */
	const char *id, *name;       /* of its job; NULL: none */
	const char *operation;       /* FAILED: which; else NULL */
	uint64_t bytes;              /* PAUSED: of GPU memory that went out */
	bool ran;                    /* SAVED: it has run since its memory was written */
	const struct journal_by *by; /* NULL: of an outcome */
	const char *text;            /* more about it; NULL: nothing */
};

/*
 * Append @event to the journal in the directory open as @dir, which belongs to @owner; root may write there. A text
 * that is too long is left out: the path of a directory may be.
 * The calling thread must have SIGXFSZ blocked. Returns 0 or a negative errno.
 */
int journal_append(int dir, uid_t owner, const struct journal_event *event);

/* Open a file of the journal, to read or to append. Returns a descriptor or a negative errno. */
int journal_open(int dir, const char *name, uid_t owner, int flags);

/* Who @by->pid is: its command line, if it can be read. */
void journal_find_command(struct journal_by *by);

#endif
