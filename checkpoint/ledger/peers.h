/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PEERS_H
#define CUDAW_PEERS_H
/*
 * The launches of kernels that wait for kernels of other processes ("peer launches"): how many of
 * them the process has made in each communicator, and how many more it may make.
 *
 * A communicator is known by the device pointer that its kernels get as first parameter. It points
 * to a struct whose first two words are the rank of this process and the number of ranks. They are
 * read when the GPU is idle and no call of the program is inside the gate (peers_read()): at any
 * other time the copy may have to wait for a kernel that waits for a peer, or the memory may be
 * freed meanwhile.
 *
 * While processes of a job come to rest together, each gets targets (tools/job/reach.h): peer
 * launches pass until all targets are met, and then wait. All other calls pass at full speed.
 *
 * These counts only make a rest fast. Whether all GPUs are idle is checked as without them.
 *
 * Thread-safe, by one lock, which is not held across calls into the driver.
 */
#include "checkpoint/ledger/contexts.h"
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PEERS_COMMS 64 /* launches in further communicators are not counted */

enum peers_kind {
	PEERS_NONE,
	PEERS_ALL,   /* all ranks of the communicator launch it */
	PEERS_SOME,  /* those ranks that send or receive */
	PEERS_OTHER, /* it waits for peers, and has no communicator that is known */
};

/* Launches of one kind in one communicator, by one call of the program. */
struct peers_launch {
	enum peers_kind kind;
	CUdeviceptr comm; /* 0 for PEERS_OTHER */
	CUcontext ctx;
	uint64_t count;
};

/* What was launched in one communicator. Both kinds of launches have entries of their own. */
struct peers_comm {
	struct peers_launch made;
	uint32_t id;         /* counted from 1 in the order of the first launches */
	uint32_t size, rank; /* a size of 0: not known */
	uint64_t read;       /* what was made when they were read */
};

struct peers_target {
	uint32_t id;
	uint64_t count;
};

/* For the hooks of launches. */

/*
 * Before a call of the program with these launches. True: they are counted, and the call may go on.
 * False: it has to wait outside the gate, by peers_wait(*@turn), and ask again.
 */
bool peers_try(const struct peers_launch *launches, size_t n, int *turn);

/* Sleep until the targets change, but not for long. */
void peers_wait(int turn);

/* For the engine's thread. */

/* From now on peer launches wait once all @targets are met. Those before are forgotten. */
void peers_aim(const struct peers_target *targets, size_t n);

/* True if all targets are met, as those of communicators that are not known. */
bool peers_arrived(void);

/* True if a count went beyond its target since the last call. */
bool peers_passed(void);

/* True if a launch of PEERS_SOME was made since the last call. */
bool peers_paired(void);

/* Peer launches do not wait any more. */
void peers_let_go(void);

/*
 * Read the sizes and ranks of the communicators whose contexts are in @contexts, and forget those
 * whose memory is freed. Unless @all, those are not read again in which nothing was launched since the
 * last time. The GPU is idle, and no call is inside the gate as GATE_HOLD.
 */
void peers_read(const struct cuda_driver *drv, const struct context_list *contexts, bool all);

/*
 * The number of ranks of a communicator with ranks in other processes; 0: none is known. A
 * communicator whose ranks may all be in this process, each with a context of its own, does not
 * count. As of the last peers_read().
 */
uint32_t peers_outside(void);

/*
 * At rest, before a pause goes on: the process @pid of the same job uses a GPU of this process, and has
 * communicators, too. 0, when a pause begins: none is known to.
 */
void peers_share_gpu(pid_t pid);

/* That process, if this one has communicators with ranks in other processes; 0: none. */
pid_t peers_sharing_gpu(void);

/* Copies what is known, by ids; returns how many. */
size_t peers_list(struct peers_comm list[static PEERS_COMMS]);

#endif
