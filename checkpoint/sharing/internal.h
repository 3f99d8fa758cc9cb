/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHARING_INTERNAL_H
#define CUDAW_SHARING_INTERNAL_H
/*
 * What the files of sharing.h share: sharing.c has the program's calls and the answers to others, importers.c the
 * list of those that have memory, stages.c the stages of the engine, which are made of asking.c, imports.c and back.c;
 * state.c has the state.
 */
#include "checkpoint/sharing/sharing.h"
#include "common/patience.h"

#include <pthread.h>

/* A process that takes part in a pause, as it last answered. */
struct sharing_member {
	struct sharing_process process;
	uint64_t cycle; /* of its pause in which this process takes part */
	int error;      /* why it has no answer, as of sharers_ask(); or 0 */
	bool lost;      /* it has ended with memory that this process has imported */
	/* By @patience: since when its resume has failed, as far as seen, and it could not be asked; or 0. */
	double failed_ms, silent_ms;
	/* In sharing_get_imports(): it has not given what it was asked for, and since when it could not be reached. */
	bool busy, probed; /* busy: it gets one request in each look; probed: it has had that */
	double unreached_ms;
	/* Under lock: it has asked for the last time (SHARING_LAST_STATE), and found that this process may go on. */
	bool heard;
	bool holds;    /* likewise: it may have memory of this process, as far as is known here */
	uint32_t asks; /* likewise: requests for its memory; a descriptor may be on its way */
	struct sharing_answer answer; /* without the sharers */
};

extern struct sharing {
	pthread_mutex_t lock;
	/* Under lock; only the engine's thread writes the rest. */
	struct sharing_process
		importers[SHARING_PROCESSES]; /* which have got memory of this process */
	uint32_t nimporters;

	enum sharing_stage stage;
	enum sharing_vote vote;
	uint64_t cycle, build;
	struct sharing_member members[SHARING_PROCESSES];
	size_t nmembers;
	bool follows;     /* the resume gives up because that of a member has failed */
	bool only_paused; /* RELEASED, and no resume has begun since SAVED: none has got memory since */
	double orphan_ms; /* clock_ms() when the last import of a freed object was found; 0: none yet */
	struct patience patience; /* the clock of these waits; it begins with 1 */
} sharing;

bool sharing_lists(const struct sharing_process *list, size_t n, const struct sharing_process *one);

/*
 * With the lock held. @importer may have memory from now on, and is noted. SHARING_LATER: there is no room for it now,
 * and those that are noted are being asked whether they still have some; SHARING_FAILED: all have. And it is noted no
 * more; false if it was not.
 */
enum sharing_result sharing_note_importer(const struct sharing_process *importer);
bool sharing_forget_importer(const struct sharing_process *importer);

/* The process that has made the memory. */
struct sharing_process sharing_exporter(const struct object_name *name);

/* The processes that share memory with this one directly, in @list; returns how many there are. */
uint32_t sharing_list_sharers(struct sharing_process list[SHARING_PROCESSES]);

#define SHARING_LISTEN_MS \
	3000 /* for a process that lives and has lost its socket to listen again */

/*
 * Ask the exporter for a descriptor, in two halves as of sharers_ask(). 0, or as that; -EBUSY: a pause has
 * the memory; -ENODATA: it is freed; -EIO: the driver does not export it.
 */
int sharing_fetch_begin(const struct object_name *name);
int sharing_fetch_end(struct patience *patience, double asked_ms, const struct object_name *name,
		      int with, int *fd, struct sharing_answer *answer);

/* True of an error of sharers_ask() or sharing_fetch_end() if the process lives, and could not be asked. */
bool sharing_is_unreached(int error);

/* What an error of sharing_fetch_end() says of the exporter, in words that follow its PID. */
#define SHARING_WHY 144
void sharing_why(const struct object_name *name, int error, char *text, size_t size);

#endif
