/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/claims.h"
#include "checkpoint/hostmem.h"
#include "checkpoint/rundir.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS  1024
#define TRIES  200 /* a process that was stopped with the lock must not stop others */
#define TRY_US 5000

/* One that has no bytes is free. */
struct slot {
	int64_t pid;
	uint64_t start; /* of the process, since a PID comes again */
	uint64_t group; /* hostmem_group() */
	uint64_t bytes; /* claimed and not taken yet; atomic */
};

static struct slot *slots; /* the mapped file */
static struct slot *own;   /* the slot that has what is left of our claim, if anything is */
static uint64_t left;      /* atomic; own->bytes is not less */

/* The locked file, or negative where it cannot be had. */
static int open_locked(void)
{
	char path[PATH_MAX];
	const char *why;
	int dir, fd = -EAGAIN;

	if (rundir_path(geteuid(), path, sizeof(path), &why))
		return -EINVAL;
	dir = rundir_create(path, geteuid(), &why);
	if (dir < 0)
		return dir;
	for (int i = 0; i < TRIES && fd == -EAGAIN; i++) {
		fd = rundir_lock(dir, RUNDIR_CLAIMS);
		if (fd == -EAGAIN)
			usleep(TRY_US);
	}
	close(dir);
	return fd;
}

/* Mapped until claims_close(): another thread may be in claims_take(). */
static bool map_slots(int fd)
{
	void *map;

	if (slots)
		return true;
	if (ftruncate(fd, SLOTS * sizeof(*slots)))
		return false;
	map = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	slots = map;
	return true;
}

static uint64_t bytes_of(const struct slot *slot)
{
	return __atomic_load_n(&slot->bytes, __ATOMIC_RELAXED);
}

/* With the lock: what living processes claim, in all and in @group; and a free slot, if any. */
static struct slot *count_others(uint64_t group, size_t *all, size_t *in_group)
{
	struct slot *found = NULL;

	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];
		uint64_t bytes = bytes_of(slot);

		/* The start of a process that is no more is 0. */
		if (bytes && slot->start == rundir_start_time((pid_t)slot->pid)) {
			*all += bytes;
			*in_group += slot->group == group ? bytes : 0;
		} else if (!found) {
			found = slot;
		}
	}
	return found;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t less(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

size_t claims_make(size_t wanted, size_t reserve)
{
	size_t all = 0, in_group = 0, machine, cgroup, available, bytes;
	uint64_t group = hostmem_group();
	struct slot *slot = NULL;
	int fd;

	claims_drop();
	fd = open_locked();
	machine = hostmem_machine_available();
	cgroup = hostmem_cgroup_available();
	if (fd >= 0 && map_slots(fd))
		slot = count_others(group, &all, &in_group);
	available = min(less(machine, all), less(cgroup, in_group));
	bytes = min(wanted, less(available, reserve));
	if (slot && bytes) {
		*slot = (struct slot){.pid = getpid(),
				      .start = rundir_start_time(getpid()),
				      .group = group,
				      .bytes = bytes};
		own = slot;
		__atomic_store_n(&left, bytes, __ATOMIC_RELEASE);
	}
	if (fd >= 0)
		rundir_unlock(fd);
	return available;
}

void claims_take(size_t bytes)
{
	uint64_t old = __atomic_load_n(&left, __ATOMIC_ACQUIRE), part;

	do {
		part = old < bytes ? old : bytes;
	} while (!__atomic_compare_exchange_n(&left, &old, old - part, false, __ATOMIC_ACQUIRE,
					      __ATOMIC_ACQUIRE));
	/* Last, since a slot without bytes is anybody's. */
	if (part)
		__atomic_sub_fetch(&own->bytes, part, __ATOMIC_RELEASE);
}

void claims_drop(void)
{
	claims_take(SIZE_MAX);
}

void claims_close(void)
{
	claims_drop();
	if (slots)
		munmap(slots, SLOTS * sizeof(*slots));
	slots = own = NULL;
}
