/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOURNALS_H
#define CUDAW_JOURNALS_H
/*
 * Reads the journals of runtime directories (common/protocol/journal.h): what they have, oldest first in each, and
 * then what is added. inotify(7) tells when, so that a wait costs nothing. What is read is the word of the
 * directory's owner: it is checked for its form, and not cleaned for a terminal.
 */
#include "common/protocol/journal.h"

#include <stdbool.h>
#include <stddef.h>

struct journal_seen {
	uint64_t unix_ms, bytes;
	enum journal_kind kind;
	pid_t pid;                           /* in its own PID namespace */
	uid_t uid;                           /* the directory's owner */
	const char *id;                      /* of the form that rundir_is_id() wants, or empty */
	const char *name, *operation, *text; /* empty: none */
	bool ran;                            /* SAVED: it has run since its memory was written */
	bool asked;                          /* the next three are known */
	uid_t by_uid;
	pid_t by_pid; /* as the job sees it; 0: not known */
	const char *by_command;
};

/* @seen is valid until it returns. */
typedef void (*journals_take)(void *arg, const struct journal_seen *seen);

struct journals {
	int inotify; /* -1: none; look from time to time */
	int users;   /* the watch for directories of further users; -1: none */
	struct journal_files *files;
	size_t n;
};

/* Without directories. @watch: the caller waits for what is added. */
void journals_init(struct journals *journals, bool watch);

/*
 * Add the journal in the directory at @path, of @owner or RUNDIR_ANYONE, unless it is there. Returns 0 or a negative
 * errno, -ENOENT if there is no directory.
 */
int journals_add(struct journals *journals, const char *path, uid_t owner);

/*
 * Add those of all directories that directories_each() finds. Once again: those that are new. Returns 0, or a negative
 * errno with *@why set.
 */
int journals_add_all(struct journals *journals, const char **why);

/* True if all that is to be seen is watched: there is a directory, and each can be. */
bool journals_are_watched(const struct journals *journals);

/* Hand on what was not read yet. A directory that was removed is none any more then. */
void journals_read(struct journals *journals, journals_take take, void *arg);

/*
 * Take what inotify says, when its descriptor can be read. True if a journal may have changed, jobs or a daemon may
 * have begun or ended, or another user has a directory.
 */
bool journals_drain(struct journals *journals);

void journals_free(struct journals *journals);

#endif
