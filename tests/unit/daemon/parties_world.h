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
/* A process joins, with @mapped of @total MiB on the GPU; its ID. */
uint32_t join_on(const char *job, int gpu, uint64_t mapped, uint64_t total);
/* The first process is out, as an earlier daemon has left it, and paused; the second one has 30 MiB. Both on GPU 0. */
void join_one_paused(uint32_t *out, const char *job, uint64_t total, uint32_t *runs,
		     const char *other);
/* The kernels of the process have ended. */
void is_drained(uint32_t id);
/* Its yield or fill has ended well. */
void end_move(uint32_t id, uint64_t mapped);
/* It was asked to go out and has done so, its pause has ended, and it wants its turn. */
void end_pause(uint32_t id);

#endif
