/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/host.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int host_read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	int err = 0;

	if (!file)
		return -errno;
	if (fgets(buf, size, file))
		buf[strcspn(buf, "\n")] = '\0';
	else
		err = -EIO;
	fclose(file);
	return err;
}

uint64_t host_memory_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t kib = 0;
	char line[128];

	while (file && !kib && fgets(line, sizeof(line), file))
		sscanf(line, "MemAvailable: %" SCNu64, &kib);
	if (file)
		fclose(file);
	return kib << 10;
}

/* The number in the file @name of a cgroup; UINT64_MAX for "max" and where it is absent. */
static uint64_t cgroup_value(const char *folder, const char *name)
{
	char path[PATH_MAX + 64], line[64], *end;
	uint64_t value;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (host_read_line(path, line, sizeof(line)))
		return UINT64_MAX;
	value = strtoull(line, &end, 10);
	return end == line ? UINT64_MAX : value;
}

/* Follow a group at @folder up to the @root of its hierarchy: each level has a limit of its own. */
static uint64_t hierarchy_left(char *folder, const char *root, const char *limit, const char *usage)
{
	uint64_t least = UINT64_MAX;

	for (;;) {
		uint64_t max = cgroup_value(folder, limit), used = cgroup_value(folder, usage);
		char *slash = strrchr(folder, '/');

		/* Version 1 has a number near 2^63 for "no limit". */
		if (max < (1UL << 62) && used != UINT64_MAX &&
		    (max > used ? max - used : 0) < least)
			least = max > used ? max - used : 0;
		if (!slash || strlen(folder) <= strlen(root))
			return least;
		*slash = '\0';
	}
}

uint64_t host_cgroup_memory_left(void)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	uint64_t least = UINT64_MAX;
	char line[PATH_MAX];

	/* HIERARCHY:CONTROLLERS:PATH, no controllers for version 2 */
	while (file && fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		char folder[PATH_MAX + 32];
		uint64_t left = UINT64_MAX;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (!controllers[1]) {
			snprintf(folder, sizeof(folder), "/sys/fs/cgroup%s", path);
			left = hierarchy_left(folder, "/sys/fs/cgroup", "memory.max",
					      "memory.current");
		} else if (!strcmp(controllers + 1, "memory")) {
			snprintf(folder, sizeof(folder), "/sys/fs/cgroup/memory%s", path);
			left = hierarchy_left(folder, "/sys/fs/cgroup/memory",
					      "memory.limit_in_bytes", "memory.usage_in_bytes");
		}
		if (left < least)
			least = left;
	}
	if (file)
		fclose(file);
	return least;
}

bool host_has_membarrier(void)
{
	long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0);

	return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void host_huge_pages(char *buf, size_t size)
{
	char line[128], *word;

	*buf = '\0';
	if (host_read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
		return;
	word = strchr(line, '[');
	if (!word)
		return;
	word[strcspn(word, "]")] = '\0';
	snprintf(buf, size, "%s", word + 1);
}
