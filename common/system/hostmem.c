/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/hostmem.h"
#include "common/system/shortage.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_PREFIX "hostmem: "
#include "common/log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PAGE      4096UL
#define HUGE_PAGE (2UL << 20)
#define NO_LIMIT  (1UL << 62) /* a v1 group without a limit has a number near 2^63 */

/*
 * Other threads of a program with few descriptors may have the last one for a moment. NULL: *@error is set if a
 * shortage is the reason. It is not waited for again then.
 */
static FILE *open_text(const char *path, int *error)
{
	int tries = *error ? SHORTAGE_TRIES : 0;
	FILE *f;

	do
		f = fopen(path, "re");
	while (!f && shortage_wait(-errno, &tries));
	if (!f && is_shortage(-errno))
		*error = -errno;
	return f;
}

/*
 * Read the numbers after the @n @keys in a file of "key value" lines. The value of a key that is not there stays as
 * it is, with *@error set if a shortage is the reason.
 */
static void read_values(const char *path, const char *const *keys, size_t n, size_t *values,
			int *error)
{
	FILE *f = open_text(path, error);
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		for (size_t i = 0; i < n; i++)
			if (!strncmp(line, keys[i], strlen(keys[i])))
				sscanf(line + strlen(keys[i]), "%zu", &values[i]);
	if (f)
		fclose(f);
}

/* The bytes that the control groups of this process allow and leave; SIZE_MAX: no limit. */
struct cgroup {
	size_t limit, left, ready;
	uint64_t number; /* hostmem_group() */
	int error;       /* a shortage, by which a limit may have been missed */
};

enum { STAT_ACTIVE, STAT_INACTIVE, STAT_CACHE, STAT_SHARED, STATS };

struct cgroup_files {
	const char *mount, *limit, *throttle, *usage, *stats[STATS];
};

static const struct cgroup_files cgroup_v2 = {
	"/sys/fs/cgroup",
	"memory.max",
	"memory.high",
	"memory.current",
	{"active_file ", "inactive_file ", "file ", "shmem "}};
static const struct cgroup_files cgroup_v1 = {
	"/sys/fs/cgroup/memory",
	"memory.limit_in_bytes",
	NULL,
	"memory.usage_in_bytes",
	{"total_active_file ", "total_inactive_file ", "total_cache ", "total_shmem "}};

/* The number in the file @name of the control group at @path; SIZE_MAX: none. */
static size_t read_number(const struct cgroup_files *files, const char *path, const char *name,
			  int *error)
{
	char file[PATH_MAX];
	size_t value = SIZE_MAX;

	snprintf(file, sizeof(file), "%s%s/%s", files->mount, path, name);
	read_values(file, (const char *[]){""}, 1, &value, error);
	return value;
}

/*
 * Lower @c to the bytes that the control group at @path and its ancestors allow and leave. In a
 * container the path may not exist.
 *
 * The kernel's two lists of file pages hold all pages that it can drop: page cache without shared
 * memory, which "file" includes, and pages of MADV_FREE, which "file" leaves out.
 */
static void cgroup_lower(const struct cgroup_files *files, char *path, struct cgroup *c)
{
	char name[PATH_MAX], *slash;

	do {
		size_t max = read_number(files, path, files->limit, &c->error);
		size_t usage = read_number(files, path, files->usage, &c->error);
		size_t stats[STATS] = {0};
		struct stat st;

		if (files->throttle)
			max = size_min(max, read_number(files, path, files->throttle, &c->error));
		if (max < NO_LIMIT)
			c->limit = size_min(c->limit, max);
		if (max < NO_LIMIT && usage != SIZE_MAX) {
			size_t cache, left;

			snprintf(name, sizeof(name), "%s%s/memory.stat", files->mount, path);
			read_values(name, files->stats, STATS, stats, &c->error);
			cache = size_less(stats[STAT_CACHE], stats[STAT_SHARED]);
			c->ready = size_min(c->ready, size_less(max, size_less(usage, cache)));
			usage = size_less(usage, stats[STAT_ACTIVE] + stats[STAT_INACTIVE]);
			left = size_less(max, usage);
			snprintf(name, sizeof(name), "%s%s", files->mount, path);
			if (left < c->left && !stat(name, &st))
				c->number = st.st_ino;
			c->left = size_min(c->left, left);
		}
		slash = strrchr(path, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

static size_t nothing_available(int error)
{
	pr_err("%s; no host memory counts as available", error_text(-error));
	return 0;
}

size_t hostmem_machine_available(void)
{
	int error = 0;
	size_t available = SIZE_MAX;

	read_values("/proc/meminfo", (const char *[]){"MemAvailable:"}, 1, &available, &error);
	if (error)
		return nothing_available(error);
	return available == SIZE_MAX ? SIZE_MAX : available * 1024;
}

static struct cgroup cgroup_query(void)
{
	struct cgroup c = {.limit = SIZE_MAX, .left = SIZE_MAX, .ready = SIZE_MAX};
	FILE *f = open_text("/proc/thread-self/cgroup", &c.error);
	char line[PATH_MAX];

	while (f && fgets(line, sizeof(line), f)) {
		const struct cgroup_files *files = NULL;
		char *path = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::", 3))
			files = &cgroup_v2;
		else if (strstr(line, ":memory:"))
			files = &cgroup_v1;
		if (files && path)
			cgroup_lower(files, path, &c);
	}
	if (f)
		fclose(f);
	return c;
}

size_t hostmem_cgroup_available(void)
{
	struct cgroup c = cgroup_query();

	return c.error ? nothing_available(c.error) : c.left;
}

size_t hostmem_ready(void)
{
	static const char *const keys[] = {"MemFree:", "Buffers:", "Cached:", "Shmem:"};
	size_t kib[4] = {0}; /* 0 if the kernel does not report it */
	struct cgroup c = cgroup_query();

	read_values("/proc/meminfo", keys, 4, kib, &c.error);
	return c.error ? 0
		       : size_min((kib[0] + kib[1] + size_less(kib[2], kib[3])) * 1024, c.ready);
}

bool hostmem_has(size_t bytes)
{
	size_t available = size_min(hostmem_machine_available(), hostmem_cgroup_available());

	return available > HOSTMEM_RESERVE && available - HOSTMEM_RESERVE >= bytes;
}

int hostmem_group(uint64_t *group)
{
	struct cgroup c = cgroup_query();

	if (!c.error)
		*group = c.number;
	return c.error;
}

size_t hostmem_limit(void)
{
	struct cgroup c = cgroup_query();

	if (c.error)
		return 0;
	return size_min(c.limit, (size_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

/* This is only advice. */
static void advise(void *start, size_t size)
{
	/* Without huge pages the copy is slower, not wrong. */
	madvise(start, size, MADV_HUGEPAGE);
	/* A forked child does not use it, and sharing it would cost page faults at resume. */
	madvise(start, size, MADV_DONTFORK);
	madvise(start, size, MADV_DONTDUMP);
}

void *hostmem_reserve(size_t size)
{
	char *start = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (start == MAP_FAILED)
		return NULL;
	/* Huge pages are aligned to their size. */
	before = -(uintptr_t)start % HUGE_PAGE;
	if (before)
		munmap(start, before);
	start += before;
	munmap(start + size, HUGE_PAGE - before);
	advise(start, size);
	return start;
}

void *hostmem_map(int fd, size_t at, size_t size)
{
	void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, at);

	if (start == MAP_FAILED)
		return NULL;
	advise(start, size);
	return start;
}

bool hostmem_replace(void *start, size_t size)
{
	/* Without this they go only when nobody has the file any more. */
	madvise(start, size, MADV_REMOVE);
	if (mmap(start, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	advise(start, size);
	return true;
}

void hostmem_release(void *start, size_t size)
{
	if (start)
		munmap(start, size);
}

bool hostmem_may_populate_files(void)
{
	return !madvise(NULL, 0, MADV_POPULATE_WRITE);
}

int hostmem_populate(void *start, size_t size)
{
	volatile char *p = start;

	if (!madvise(start, size, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno; /* EFAULT: of a memory file */
	for (size_t i = 0; i < size; i += PAGE)            /* before Linux 5.14 */
		p[i] = 0;
	return 0;
}
