/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that sets attributes which new threads take over, before it uses CUDA. What a thread of cudaw has of them
 * it says: natively there is none.
 */
#include "tests/guests/programs/guest.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

#define SKIPPED 77

static int is_bound(pid_t tid)
{
	cpu_set_t set;

	MUST(sched_getaffinity(tid, sizeof(set), &set));
	return CPU_COUNT(&set) == 1;
}

static int has_priority(pid_t tid)
{
	return sched_getscheduler(tid) != SCHED_OTHER;
}

static void with_small_stacks(void)
{
	struct guest_memory memory;
	pthread_attr_t attr;

	CALL(pthread_attr_init(&attr));
	CALL(pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN));
	CALL(pthread_setattr_default_np(&attr));
	guest_memory_init(&memory);
	guest_memory_point(&memory);
}

static void on_one_processor(void)
{
	struct guest_memory memory;
	cpu_set_t set;
	int first = 0;

	MUST(sched_getaffinity(0, sizeof(set), &set));
	if (CPU_COUNT(&set) == 1) {
		puts("there is one processor");
		exit(SKIPPED);
	}
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set));
	guest_memory_init(&memory);
	printf("bound: %d\n", guest_count_threads(is_bound));
	guest_memory_point(&memory);
}

static void in_real_time(void)
{
	const struct sched_param first = {.sched_priority = 1};
	struct guest_memory memory;

	if (sched_setscheduler(0, SCHED_RR, &first)) {
		puts("no right to real time");
		exit(SKIPPED);
	}
	guest_memory_init(&memory);
	printf("in real time: %d\n", guest_count_threads(has_priority));
	guest_memory_point(&memory);
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"stacks", with_small_stacks},
		{"processor", on_one_processor},
		{"policy", in_real_time},
	};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
