/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/host/promises.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>

#define UNIT      (1UL << 20)
#define SLOT_SIZE (1L << 24)
#define SLOTS     1024L
#define AREA_SIZE (SLOTS * SLOT_SIZE)
#define AREAS     (1UL << 28)
#define BEGIN     (1L << 62)
#define END       LONG_MAX

struct sum {
	off_t area; /* the area's start */
	uint64_t in_area, in_all;
};

static off_t area_start(uint64_t area)
{
	return BEGIN + (off_t)(area % AREAS) * AREA_SIZE;
}

static uint64_t units(uint64_t bytes)
{
	return bytes / UNIT + (bytes % UNIT != 0);
}

static int set_lock(int fd, short type, off_t start, off_t length)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};

	return fcntl(fd, F_SETLK, &lock) ? -errno : 0;
}

int promise_make(struct promise *promise, int fd, uint64_t area, uint64_t bytes)
{
	uint64_t most = bytes < SLOT_SIZE * UNIT ? bytes : SLOT_SIZE * UNIT;
	int error = 0;

	*promise = (struct promise){.fd = fd};
	for (long slot = 0; slot < SLOTS && most; slot++) {
		off_t start = area_start(area) + slot * SLOT_SIZE;

		error = set_lock(fd, F_WRLCK, start, (off_t)units(most));
		if (!error) {
			promise->start = start;
			__atomic_store_n(&promise->left, most, __ATOMIC_RELEASE);
		}
		if (error != -EAGAIN && error != -EACCES)
			break;
	}
	return error;
}

void promise_lower(struct promise *promise, uint64_t bytes)
{
	uint64_t old = __atomic_load_n(&promise->left, __ATOMIC_ACQUIRE), left;

	do {
		left = old > bytes ? old - bytes : 0;
	} while (!__atomic_compare_exchange_n(&promise->left, &old, left, false, __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
	if (units(left) < units(old))
		set_lock(promise->fd, F_UNLCK, promise->start + (off_t)units(left),
			 SLOT_SIZE - (off_t)units(left));
}

/* The kernel returns any one of the locks in a range, so search on both sides of it. */
static int add_locks(int fd, off_t from, off_t to, struct sum *sum)
{
	while (from < to) {
		struct flock lock = {.l_type = F_WRLCK,
				     .l_whence = SEEK_SET,
				     .l_start = from,
				     .l_len = to - from};
		off_t start, end;
		uint64_t bytes;
		int error;

		if (fcntl(fd, F_GETLK, &lock))
			return -errno;
		if (lock.l_type == F_UNLCK)
			return 0;
		start = lock.l_start > from ? lock.l_start : from;
		end = lock.l_len && lock.l_start + lock.l_len < to ? lock.l_start + lock.l_len : to;
		bytes = (uint64_t)(end - start) * UNIT;
		sum->in_all += bytes;
		if (start >= sum->area && start - sum->area < AREA_SIZE)
			sum->in_area += bytes;
		error = add_locks(fd, from, start, sum);
		if (error)
			return error;
		from = end;
	}
	return 0;
}

int promise_others(int fd, uint64_t area, uint64_t *in_area, uint64_t *in_all)
{
	struct sum sum = {.area = area_start(area)};
	int error = add_locks(fd, BEGIN, END, &sum);

	if (error)
		return error;
	*in_area = sum.in_area;
	*in_all = sum.in_all;
	return 0;
}
