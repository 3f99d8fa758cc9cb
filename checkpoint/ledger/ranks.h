/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RANKS_H
#define CUDAW_RANKS_H
/*
 * The launches of kernels that wait for kernels of other processes ("rank launches"): how many of
 * them the process has made in each communicator, and how many more it may make.
 *
 * A communicator is known by the device pointer that its kernels get as first parameter. It points
 * to a struct whose first two words are the rank of this process and the number of ranks. They are
 * read when the GPU is idle and no call of the program is inside the gate (ranks_read()): at any
 * other time the copy may have to wait for a kernel that waits for another rank, or the memory may be
 * freed meanwhile.
 *
 * While processes of a job come to rest together, each gets targets (tools/job/party/reach.h): rank
 * launches pass until all targets are met, and then wait. All other calls pass at full speed.
 *
 * These counts only make a rest fast. Whether all GPUs are idle is checked as without them.
 *
 * Thread-safe, by one lock, which is not held across calls into the driver.
 */
#include "checkpoint/ledger/contexts.h"
#include "vmem/cuda_driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_COMMS 64 /* launches in further communicators are not counted */

enum ranks_kind {
	RANKS_NONE,
	RANKS_ALL,   /* all ranks of the communicator launch it */
	RANKS_SOME,  /* those ranks that send or receive */
	RANKS_OTHER, /* it waits for other ranks, and has no communicator that is known */
};

/* Launches of one kind in one communicator, by one call of the program. */
struct ranks_launch {
	enum ranks_kind kind;
	CUdeviceptr comm; /* 0 for RANKS_OTHER */
	CUcontext ctx;
	uint64_t count;
};

/* What was launched in one communicator. Both kinds of launches have entries of their own. */
struct ranks_comm {
	struct ranks_launch made;
	uint32_t id;         /* counted from 1 in the order of the first launches */
	uint32_t size, rank; /* a size of 0: not known */
	uint64_t read;       /* what was made when they were read */
};

struct ranks_target {
	uint32_t id;
	uint64_t count;
};

/* For the hooks of launches. */

/*
 * Before a call of the program with these launches. True: they are counted, and the call may go on.
 * False: it has to wait outside the gate, by ranks_wait(*@seen), and ask again.
 */
bool ranks_try(const struct ranks_launch *launches, size_t n, int *seen);

/* Sleep until the targets change, but not for long. */
void ranks_wait(int seen);

/* For the engine's thread. */

/* From now on rank launches wait once all @targets are met. Those before are forgotten. */
void ranks_aim(const struct ranks_target *targets, size_t n);

/* True if all targets are met, as those of communicators that are not known. */
bool ranks_arrived(void);

/* True if a count went beyond its target since the last call. */
bool ranks_passed(void);

/* True if a launch of RANKS_SOME was made since the last call. */
bool ranks_paired(void);

/* Launches of kernels that wait for other ranks do not wait any more. */
void ranks_let_go(void);

/*
 * Read the sizes and ranks of the communicators whose contexts are in @contexts, and forget those
 * whose memory is freed. Unless @all, those are not read again in which nothing was launched since the
 * last time. The GPU is idle, and no call is inside the gate as GATE_HOLD.
 */
void ranks_read(const struct cuda_driver *drv, const struct context_list *contexts, bool all);

/*
 * The number of ranks of a communicator with ranks in other processes; 0: none is known. A
 * communicator whose ranks may all be in this process, each with a context of its own, does not
 * count. As of the last ranks_read().
 */
uint32_t ranks_outside(void);

/*
 * At rest, before a pause goes on: the process @pid of the same job uses a GPU of this process, and has
 * communicators, too. 0, when a pause begins: none is known to.
 */
void ranks_share_gpu(pid_t pid);

/* That process, if this one has communicators with ranks in other processes; 0: none. */
pid_t ranks_sharing_gpu(void);

/* Copies what is known, by ids; returns how many. */
size_t ranks_list(struct ranks_comm list[static RANKS_COMMS]);

#endif
