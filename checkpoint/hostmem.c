/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/hostmem.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PAGE     4096UL
#define NO_LIMIT (1UL << 62) /* a v1 group without one has a number near 2^63 */

/* The number after @key in a file of "key value" lines; SIZE_MAX where there is none. */
static size_t read_value(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	char line[256];
	size_t value = SIZE_MAX, len = strlen(key);

	if (!f)
		return SIZE_MAX;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, len))
			continue;
		if (sscanf(line + len, "%zu", &value) != 1)
			value = SIZE_MAX;
		break;
	}
	fclose(f);
	return value;
}

struct cgroup_files {
	const char *mount, *limit, *usage, *file_key, *shmem_key;
};

static const struct cgroup_files cgroup_v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
					      "file ", "shmem "};
static const struct cgroup_files cgroup_v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
					      "memory.usage_in_bytes", "total_cache ",
					      "total_shmem "};

/* What the group at @path and its ancestors leave. In a container the path may not exist. */
static size_t cgroup_available(const struct cgroup_files *files, char *path)
{
	size_t least = SIZE_MAX;
	char name[PATH_MAX];

	for (;;) {
		size_t limit, usage, cache, shmem;

		snprintf(name, sizeof(name), "%s%s/%s", files->mount, path, files->limit);
		limit = read_value(name, "");
		snprintf(name, sizeof(name), "%s%s/%s", files->mount, path, files->usage);
		usage = read_value(name, "");
		snprintf(name, sizeof(name), "%s%s/memory.stat", files->mount, path);
		cache = read_value(name, files->file_key);
		/* Shared memory is counted as page cache, but nothing can drop it. */
		shmem = read_value(name, files->shmem_key);
		if (cache != SIZE_MAX && shmem != SIZE_MAX)
			cache -= shmem < cache ? shmem : cache;
		if (limit < NO_LIMIT && usage != SIZE_MAX) {
			if (cache != SIZE_MAX)
				usage -= cache < usage ? cache : usage;
			if (limit - (usage < limit ? usage : limit) < least)
				least = limit - (usage < limit ? usage : limit);
		}
		char *slash = strrchr(path, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

size_t hostmem_machine_available(void)
{
	size_t available = read_value("/proc/meminfo", "MemAvailable:");

	return available == SIZE_MAX ? SIZE_MAX : available * 1024;
}

size_t hostmem_cgroup_available(void)
{
	size_t available = SIZE_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];

	while (f && fgets(line, sizeof(line), f)) {
		const struct cgroup_files *files = NULL;
		char *path = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::", 3))
			files = &cgroup_v2;
		else if (strstr(line, ":memory:"))
			files = &cgroup_v1;
		if (!files || !path)
			continue;
		size_t left = cgroup_available(files, path);
		if (left < available)
			available = left;
	}
	if (f)
		fclose(f);
	return available;
}

size_t hostmem_available(void)
{
	size_t machine = hostmem_machine_available(), group = hostmem_cgroup_available();

	return machine < group ? machine : group;
}

void *hostmem_reserve(size_t size)
{
	void *start = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED)
		return NULL;
	/* Advice only: without huge pages the copy is slower, not wrong. */
	madvise(start, size, MADV_HUGEPAGE);
	/* A forked child has no use for it, and sharing it would cost page faults at resume. */
	madvise(start, size, MADV_DONTFORK);
	return start;
}

void hostmem_release(void *start, size_t size)
{
	if (start)
		munmap(start, size);
}

int hostmem_populate(void *start, size_t size)
{
	volatile char *p = start;

	if (!madvise(start, size, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return -errno;
	for (size_t i = 0; i < size; i += PAGE) /* before Linux 5.14 */
		p[i] = 0;
	return 0;
}
