/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_STEPS_H
#define CUDAW_STEPS_H
/*
 * How processes that wait for each other on the GPU come to rest together.
 *
 * Each process ("rank") is held (common/protocol.h): its gate is closed, and it is drained, or
 * stuck in kernels or calls that wait for what a drained rank has not launched yet. The drained
 * ones are let make some more calls, step by step, until all are drained at once. Nothing is known
 * of the calls; all there is are the answers "drained" and "stuck".
 *
 * Why that ends, where all ranks take part in all collectives: of those launched and not done, the
 * first has been launched by all stuck ranks and by no drained one, so the drained ranks are behind
 * and the stuck ones ahead. Stuck ranks get no step, so nobody gets further than the farthest was
 * at the start, if each step is one call: who comes there is stuck until the last one comes, and
 * then all are drained. Rounds are what makes that exact: a step is given when all have answered
 * the last one, and when the stuck ranks have had a moment to say that it freed them.
 *
 * One call at a time is slow where a rank is hundreds of calls ahead. So a step is one call, and a
 * quarter of those that the rank has made since the chase began; a chase ends when all that were
 * stuck at its beginning have been drained once. The rank that comes last may then go too far. But
 * a step ends at the call that gets stuck, which is the next collective, and it gets there only
 * where that is nearer than a quarter of the way that the chase took: mostly it is not, and all
 * are drained; else there is another chase, over that one collective. The same holds where a
 * kernel only takes its time and looks stuck.
 *
 * Where groups of ranks have collectives of their own (pipelines), a drained rank need not be one
 * that is waited for, and steps of all can chase each other in a circle. So after some chases a
 * coin decides for each rank whether it makes a step: any set of ranks gets its turn. That is a
 * matter of luck, which is short with many ranks: in the model of the unit test pipelines of up to
 * 8 ranks are at rest within 5 s, and some of 14 are not within 30 s.
 *
 * Where nothing changes for a while, the call that is needed may be behind the gate of a stuck
 * rank: in a thread that has to launch something before it answers the CPU of a drained one, or
 * on another stream. Then all ranks make one call. Ranks whose kernels just run are hardly moved
 * by that, because the while gets longer with time.
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

/* A rank has answered: its last step let @came calls in. */
void steps_take(struct steps *steps, size_t rank, bool drained, uint32_t came, int64_t now_ms);

/* A rank is at rest for good: it takes no steps and nobody waits for its answer. */
void steps_leave(struct steps *steps, size_t rank);

enum steps_verdict steps_next(struct steps *steps, int64_t now_ms);

#endif
