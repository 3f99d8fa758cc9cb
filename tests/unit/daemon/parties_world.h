/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PARTIES_WORLD_H
#define CUDAW_PARTIES_WORLD_H
/* Parties on two GPUs, and the orders that they give. A test is the processes. */
#include "tools/daemon/parties.h"

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
/* The kernels of the process have ended. */
void is_drained(uint32_t id);

#endif
