/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_STEPS_H
#define CUDAW_STEPS_H
/*
 * How processes that wait for each other on the GPU come to rest together.
 *
 * Each process ("rank") is held (common/protocol.h): its gate is closed, and it is drained, or
 * stuck in kernels or calls that wait for a launch which a drained rank has not made yet. The
 * drained ranks are let through for some more calls, step by step, until all are drained at once.
 * Nothing is known of the calls except the answers "drained" and "stuck".
 *
 * Why this ends if all ranks take part in all collectives: the first collective that is launched
 * and not done has been launched by all stuck ranks and by no drained rank. So the drained ranks
 * are behind and the stuck ranks ahead. Stuck ranks get no step. If each step is one call, no rank
 * gets further than the farthest rank was at the start: a rank that comes there is stuck until the
 * last rank comes, and then all are drained. Rounds make this exact: a step is given when all ranks
 * have answered the last one, and the stuck ranks have had a moment to report that it freed them.
 *
 * One call at a time is slow where a rank is hundreds of calls ahead. So a step is one call, and a
 * quarter of those that the rank has made since the chase began; a chase ends when all that were
 * stuck at its beginning have been drained once. The rank that comes last may then go too far. But
 * a step ends at the call that gets stuck, which is the next collective. The rank reaches it only
 * if it is nearer than a quarter of the way of the chase. Mostly it is not, and all are drained;
 * else there is another chase, over that one collective. The same holds if a slow kernel looks
 * stuck.
 *
 * If groups of ranks have collectives of their own (pipelines), nobody may wait for a drained rank,
 * and the steps of all can chase each other in a circle. So after some chases a coin decides for
 * each rank whether it makes a step: each set of ranks gets its turn. This needs luck, and more of
 * it with more ranks: in the model of the unit test pipelines of up to 8 ranks are at rest within
 * 5 s, and some of 14 are not within 30 s.
 *
 * If nothing changes for a while, the needed call may be behind the gate of a stuck rank: in a
 * thread that must launch something before it answers the CPU of a drained rank, or on another
 * stream. Then all ranks make one call. This moves ranks with long kernels very little, because the
 * while gets longer with time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct steps_rank {
	bool asked;    /* its answer is due */
	bool drained;  /* as it last said, else stuck */
	bool left;     /* it is at rest for good */
	bool chased;   /* has been stuck since the chase began */
	uint32_t made; /* calls since the chase began */
	uint32_t step; /* calls to let in now; 0: none */
};

struct steps {
	struct steps_rank *ranks; /* the caller's */
	size_t n;
	uint32_t chases;
	uint32_t random; /* not 0 */
	int64_t begin_ms, news_ms, change_ms;
};

enum steps_verdict {
	STEPS_WAIT,  /* for a report, or for a while */
	STEPS_GO,    /* the ranks that have a step are to make it, and are asked now */
	STEPS_READY, /* all are drained: commit */
};

/* All ranks are asked; @seed is for the coins. */
void steps_begin(struct steps *steps, struct steps_rank *ranks, size_t n, uint32_t seed,
		 int64_t now_ms);

/* A rank has answered: its last step let @came calls through. */
void steps_take(struct steps *steps, size_t rank, bool drained, uint32_t came, int64_t now_ms);

/* True if all are drained, and no answer is due. */
bool steps_are_over(const struct steps *steps);

/* A rank stays at rest: it gets no steps, and its answer is not awaited. */
void steps_leave(struct steps *steps, size_t rank);

enum steps_verdict steps_next(struct steps *steps, int64_t now_ms);

#endif
