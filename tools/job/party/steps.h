/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_STEPS_H
#define CUDAW_STEPS_H
/*
 * How processes that wait for each other on the GPU come to rest together.
 *
 * Each process ("rank") is held (common/protocol/protocol.h): its gate is closed, and it is drained, or
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
 * it with more ranks. If it takes long, waves follow.
 *
 * A wave: all ranks but one, the anchor, go on until they are stuck. If the ranks are a chain, and the
 * anchor is at its end, then each waits for its neighbour on the side of the anchor, which has made
 * one launch too few. From here on the ranks that were drained last make steps. The first is the
 * anchor. Its launch frees its neighbour, whose next launches free the next one, and so on to the
 * other end, where all are at rest. Or the last rank of this wave gets stuck, as it waits for the next
 * batch of the pipeline. Then the ranks behind it do so, too, from the latest back to the anchor, and
 * the next wave brings that batch. With an anchor in the middle there are two neighbours to free, and
 * a launch for the wrong one leads to another wait. So another anchor follows after some turns.
 *
 * Ranks whose launches for others are known (reach.h) begin with waves: the ends of the pipeline have
 * made half as many as the others, and each step is a launch. In the model of the unit test pipelines
 * of 16 ranks are at rest within 2 s then, and else within 10 s.
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
	bool asked;      /* its answer is due */
	bool drained;    /* as it last said, else stuck */
	bool left;       /* it is at rest for good */
	bool chased;     /* has been stuck since the chase began */
	uint32_t made;   /* calls since the chase began; after that, since it was stuck */
	uint32_t turn;   /* the steps' when it was drained, or made calls, last; 0: it made none */
	uint32_t step;   /* calls to let in now; 0: none */
	double early_ms; /* it is asked, and was drained then, before it saw the order; or 0 */
	uint64_t launches; /* that wait for some of the ranks, as far as known */
};

enum steps_way { STEPS_CHASE, STEPS_GATHER, STEPS_WAVE };

struct steps {
	struct steps_rank *ranks; /* the caller's */
	size_t n;
	enum steps_way way;
	uint32_t turns; /* of this way; the plain chases do not count */
	uint32_t turn;  /* counts by 2 */
	uint32_t chases, waves;
	size_t anchor;
	bool by_launches; /* a step ends with a launch that counts */
	uint32_t random;  /* not 0 */
	double begin_ms, way_ms, news_ms, change_ms;
};

enum steps_verdict {
	STEPS_WAIT,  /* for a report, or for a while */
	STEPS_GO,    /* the ranks that have a step are to make it, and are asked now */
	STEPS_READY, /* all are drained: commit */
};

/* All ranks are asked; @seed is for the coins. */
void steps_begin(struct steps *steps, struct steps_rank *ranks, size_t n, uint32_t seed,
		 double now_ms);

/*
 * Begin with waves: the ranks may be stages of a pipeline. Their launches are set, and a step ends with
 * such a launch.
 */
void steps_begin_waves(struct steps *steps, double now_ms);

/* A rank has answered: its last step let @came calls through. */
void steps_take(struct steps *steps, size_t rank, bool drained, uint32_t came, double now_ms);

/* True if all are drained, and no answer is due. */
bool steps_are_over(const struct steps *steps);

/* A rank stays at rest: it gets no steps, and its answer is not awaited. */
void steps_leave(struct steps *steps, size_t rank);

enum steps_verdict steps_next(struct steps *steps, double now_ms);

#endif
