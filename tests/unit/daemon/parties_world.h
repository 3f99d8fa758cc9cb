/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PARTIES_WORLD_H
#define CUDAW_PARTIES_WORLD_H
/* Parties on two GPUs, and the orders that they give. A test is the processes. */
#include "tools/daemon/parties/parties.h"

#define MIB      (1UL << 20)
#define CAPACITY (100 * MIB)
#define GPUS     2
#define QUEUED   256

struct parties_world {
	struct parties *parties;
	double now;
	struct {
		struct party_order order;
		char text[64];
	} queue[QUEUED]; /* of the last decision */
	size_t n;
};

extern struct parties_world w;

/* A checked fixture. */
void parties_begin(void);
void parties_end(void);

void parties_decide_now(void);
/* Decide now: true if the process gets such an order. The second: as time passes, until it does. */
bool is_ordered(enum party_order_kind kind, uint32_t id);
void wait_for_order(enum party_order_kind kind, uint32_t id);
/* The bytes of its order of the last decision. */
uint64_t ordered_bytes(enum party_order_kind kind, uint32_t id);
/* A process joins, with @mapped of @total MiB on the GPU; its ID. */
uint32_t join_on(const char *job, int gpu, uint64_t mapped, uint64_t total);
/* What a process has on each of two GPUs. */
void need_two(uint32_t id, uint64_t mapped, uint64_t total);
/* The first process is out, as an earlier daemon has left it, and paused; the second one has 30 MiB. Both on GPU 0. */
void join_one_paused(uint32_t *out, const char *job, uint64_t total, uint32_t *runs,
		     const char *other);
/* The kernels of the process have ended. */
void is_drained(uint32_t id);
/* Its yield or fill has ended well. */
void end_move(uint32_t id, uint64_t mapped);
/* It was asked to go out and has done so, its pause has ended, and it wants its turn. */
void end_pause(uint32_t id);
/* Two processes of a job are to go out for an allocation of another job, and the first one has done so, or failed. */
void begin_two(uint32_t *first, uint32_t *second, uint32_t *other, enum turns_end end);
/* Both are out, and there is room for both. */
void have_room(uint32_t *first, uint32_t *second);
/* 30 MiB are missing on the first GPU, of whose processes each gives its part. */
void give_two(uint32_t giver[2], int gpu, uint32_t *other);

#endif
