/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REACH_H
#define CUDAW_REACH_H
/*
 * How processes that wait for each other in known communicators come to rest together: by targets.
 *
 * Each held process ("rank") says how many launches it has made in each of its communicators
 * (common/protocol/protocol.h). The target of a communicator is the largest count among its ranks. Each rank
 * runs at full speed until it has met all its targets, and is held again. A rank that has to pass a
 * target on the way raises it for the others. If all counts of a communicator are equal, no kernel
 * in it waits for a launch that is held back. MANA brings MPI programs to rest in this way.
 *
 * The processes have no common name for a communicator, so the ways below guess which ones belong
 * together. A wrong guess costs time: whether all GPUs are idle is always checked (steps.h), and if
 * they are not after all targets were met, the next way follows. When the ways are used up, or a rank
 * comes no nearer to a target for long, the ranks go by steps. Ranks without communicators do so at
 * once.
 *
 *	REACH_PLACE	the communicators of the same size that were first used as the first, the
 *			second, ... of their process: all processes run the same program. If most of
 *			them say the same rank, as the stages of a pipeline do, they are of several
 *			communicators, and all of their size go as by the next way
 *	REACH_SIZE	all of the same size, if their counts are much alike: the pairs of a pipeline
 *	REACH_WORLD	the one that all ranks belong to: on to its next launch. Whatever was
 *			launched before that has all its partners
 *
 * Counts of one communicator differ by what a CPU is ahead of another. If they differ by far more,
 * the guess is wrong, and the communicator gets no target. If it is one of sends and receives, and the ranks have
 * met the targets of the others, REACH_WORLD follows next.
 */
#include "tools/job/party/steps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REACH_COMMS 64
#define REACH_TEXT  2048 /* of an order: REACH_COMMS times "ID:COUNT" */
#define REACH_MOST  2048 /* communicators of all ranks; with more they go by steps */

struct reach_comm {
	uint32_t id, size; /* a size of 0: not known */
	int64_t rank;      /* of its process in it; -1: not known */
	bool some;         /* not all ranks launch its kernels */
	size_t place;      /* among those of its kind in its process */
	size_t sized;      /* among those of the same size, too */
	bool mixed;        /* by the ranks, its place takes several communicators for one */
	bool aimed;        /* it has a target */
	uint64_t made, target;
	double moved_ms; /* the latest launch that is known, or when the target was set */
};

struct reach_rank {
	struct reach_comm comms[REACH_COMMS];
	size_t n;
	uint32_t number; /* of its last order; 0: it had none */
	bool ordered;    /* an order is to be sent now */
	bool fresh;      /* a target has changed since its last order */
	bool told;       /* it has named its communicators since it was last held */
};

enum reach_way { REACH_PLACE, REACH_SIZE, REACH_WORLD, REACH_WAYS };

struct reach {
	struct reach_rank *ranks; /* the caller's */
	size_t n;
	bool begun;         /* all have told their counts */
	enum reach_way way; /* REACH_WAYS: used up */
	bool stale;         /* the targets are older than what is known */
	bool apart;         /* sends and receives have no target, as their counts are far apart */
	bool world;         /* there is a communicator for REACH_WORLD */
	double begin_ms, change_ms;
};

enum reach_verdict {
	REACH_WAIT,
	REACH_GO,   /* the ranks that are ordered are to get their orders */
	REACH_OVER, /* the ranks go by steps; an order for some ends their way to their targets */
};

/* @steps has as many ranks. */
void reach_begin(struct reach *reach, struct reach_rank *ranks, size_t n, double now_ms);

/* What a "comms" line of @rank says. Returns 0 or -EBADMSG. */
int reach_take_comms(struct reach *reach, size_t rank, const char *comms, double now_ms);

/*
 * A "held" line of @rank repeats @number. False: it was sent before the rank got its last order, and
 * says nothing. A rank has no communicators any more if no "comms" line came before its "held" line.
 */
bool reach_take_held(struct reach *reach, size_t rank, uint32_t number, double now_ms);

/*
 * What to do now, unless all are at rest. Ranks that are ordered are asked (struct steps_rank).
 * REACH_OVER once, and for ever after.
 */
enum reach_verdict reach_next(struct reach *reach, struct steps *steps, double now_ms);

/* The order for @rank. */
void reach_write(const struct reach *reach, size_t rank, char text[static REACH_TEXT]);

#endif
