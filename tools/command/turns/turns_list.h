/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURNS_LIST_H
#define CUDAW_TURNS_LIST_H
/* Who takes turns on which GPU, as cudawd says (tools/daemon/commands.h has the lines). */
#include "common/gpu/nvml.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define GPUS_MAX 64

struct turns_gpu {
	char uuid[NVML_UUID_SIZE];
	uint64_t total, used, others, capacity;
	char state[16];
};

struct turns_need {
	char uuid[NVML_UUID_SIZE];
	uint64_t mapped, total;
};

struct turns_member {
	uint32_t number, waits_for;
	int pid;
	uid_t uid;
	char state[16], id[16], name[65], class[16], command[201];
	int weight;
	struct turns_need needs[GPUS_MAX];
	int nneeds;
	struct turns_unfit {
		char uuid[NVML_UUID_SIZE];
		uint64_t needs, there;
	} unfit;          /* needs 0: it fits */
	char context[16]; /* in, out or restored */
	double wait_ms, left_ms;
	unsigned int turns;
};

struct turns_list {
	int pid;
	char version[32];
	struct turns_gpu gpus[GPUS_MAX];
	int ngpus;
	struct turns_member *members;
	int nmembers;
};

/* Ask cudawd. Returns what cudawd_ask() does, with its @where. Free @list in any case. */
int ask_for_turns(struct turns_list *list, char where[PATH_MAX]);
void free_turns(struct turns_list *list);

/* The member that has the memory that @member waits for; NULL: none. */
const struct turns_member *awaited_by(const struct turns_list *list,
				      const struct turns_member *member);

#endif
