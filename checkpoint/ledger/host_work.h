/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_WORK_H
#define CUDAW_HOST_WORK_H
/*
 * Work of the GPU that waits for threads of the program: its host functions, which the driver calls in a
 * thread of its own, and values in memory. Such a thread may have to make CUDA calls first, or hold a lock
 * around one that a host function needs (Python's, say); so a pause that only waits for such work might wait
 * for ever (checkpoint/gate/quiet.h).
 *
 * Which host functions run is known. Those of graphs are not, nor is which values are waited for: of these
 * it is only known that the program has made such work. Thread-safe.
 */
#include <cuda.h>
#include <stdbool.h>

/* A host function, while it runs. */
struct host_run {
	CUstream stream;
	const void *function;
	double begin_ms; /* clock_ms(); this and the next ones are this module's */
	struct host_run *prev, *next;
};

/* The calling thread begins and ends it; @run stays in place in between. */
void host_work_begins(struct host_run *run);
void host_work_ends(struct host_run *run);

/* How many host functions were launched, and how many have ended, of those that begin and end here. */
struct host_counts {
	unsigned long launched, ended;
};

void host_work_launched(void);
struct host_counts host_work_counts(void);

/* True if one runs: @found is a copy of the one that runs for the longest time. */
bool host_work_runs(struct host_run *found);

/* Work is made that may wait for the program, and of which it will not be known whether it does. */
void host_work_made(void);

/* True if such work was ever made. */
bool host_work_may_wait(void);

#endif
