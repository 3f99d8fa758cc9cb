/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of the GPU's work, by which copies that have a rate end, and events get their times. It is
 * CLOCK_MONOTONIC, or stands until a test lets it advance: the milliseconds in the file CUDAW_SIM_CLOCK, a uint32_t
 * on which who waits sleeps by futex(2).
 */
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint32_t *told_ms; /* NULL: it is CLOCK_MONOTONIC */

/* Without a descriptor afterwards, which the program might close. */
void work_clock_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *map = mmap(NULL, sizeof(*told_ms), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED) {
		fprintf(stderr, "sim: CUDAW_SIM_CLOCK: cannot map %s\n", path);
		abort();
	}
	close(fd);
	told_ms = map;
}

static uint32_t told(void)
{
	return __atomic_load_n(told_ms, __ATOMIC_ACQUIRE);
}

uint64_t work_now(void)
{
	return told_ms ? told() * 1000000ull : sim_now();
}

void work_wait(uint64_t deadline)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline / 1000000000u),
		.tv_nsec = (long)(deadline % 1000000000u),
	};
	uint32_t ms;

	if (!told_ms) {
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
			;
		return;
	}
	/* What ends within this millisecond is over: a program whose copies are small goes on. */
	while ((ms = told()) < deadline / 1000000u) {
		say_held(sim.config.clock);
		syscall(SYS_futex, told_ms, FUTEX_WAIT, ms, NULL, NULL, 0);
	}
}
