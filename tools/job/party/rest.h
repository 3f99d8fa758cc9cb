/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REST_H
#define CUDAW_REST_H
/*
 * Leads held processes of a job to rest: by targets (reach.h), or else by steps (steps.h). Lines of
 * common/protocol/protocol.h go in and come out; no I/O. One thread at a time.
 */
#include "tools/job/party/reach.h"
#include "tools/job/party/steps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line;

struct rest {
	struct steps steps;
	struct steps_rank *ranks;
	struct reach reach;
	struct reach_rank *reaching;
	bool by_steps;    /* the targets have not helped */
	bool by_reaching; /* the orders that are due are those of reach.h */
};

enum rest_verdict {
	REST_WAIT,
	REST_GO,    /* rest_order() has orders */
	REST_READY, /* all are at rest: commit */
};

/* @n processes, which have been asked to hold. Returns 0 or -ENOMEM; rest_fini() in either case. */
int rest_init(struct rest *rest, size_t n, uint32_t seed, double now_ms);
void rest_fini(struct rest *rest);

/* A "held" or a "comms" line of @rank. Returns 0 or -EBADMSG. */
int rest_take(struct rest *rest, size_t rank, const struct line *line, double now_ms);

/* @rank is asked again. */
void rest_ask(struct rest *rest, size_t rank);

/* True if @rank has said that it is drained, and awaits orders. */
bool rest_is_drained(const struct rest *rest, size_t rank);

/* @rank is at rest for good, or has ended. */
void rest_leave(struct rest *rest, size_t rank);

/* True if @rank has named communicators. */
bool rest_has_comms(const struct rest *rest, size_t rank);

/* What to do now. Call it every few milliseconds, and when a line has come. */
enum rest_verdict rest_next(struct rest *rest, double now_ms);

/* After REST_GO: the order for @rank; false: it gets none. */
bool rest_order(const struct rest *rest, size_t rank, char text[static REACH_TEXT]);

#endif
