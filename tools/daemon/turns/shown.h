/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHOWN_H
#define CUDAW_SHOWN_H
/*
 * How much of what the members say they have on a GPU can be true, by a sample of NVML. A process has at most
 * what NVML shows for its PID, its context included. NVML may not list a process, or list it under the PID of another
 * namespace, as in containers: all such processes together have at most what is used on the GPU and not
 * shown for a process that is seen here. Memory that one member claims is there for no second one.
 */
#include "tools/daemon/sampler.h"

#include <stddef.h>
#include <sys/types.h>

struct shown {
	struct nvml_holder left[NVML_HOLDERS]; /* what no member has claimed yet */
	int count;
	size_t rest; /* the same, of processes that are not listed */
};

void shown_begin(struct shown *shown, const struct sample *sample);

/* What the process @pid, which claims @mapped bytes, can have at most; 0 for @pid: it is not seen here. */
size_t shown_bound(struct shown *shown, pid_t pid, size_t mapped);

#endif
