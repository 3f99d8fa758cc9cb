/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/memory_fs.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *name_of_type(const char *path)
{
	struct statfs fs;

	if (statfs(path, &fs))
		return NULL;
	switch ((unsigned long)fs.f_type) {
	case TMPFS_MAGIC:
		return "tmpfs";
	case RAMFS_MAGIC:
		return "ramfs";
	case HUGETLBFS_MAGIC:
		return "hugetlbfs";
	default:
		return NULL;
	}
}

/* sysfs(5): the link's last part is the name of the device. */
static const char *name_of_device(dev_t dev)
{
	char path[64], target[PATH_MAX];
	const char *name;
	ssize_t len;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return NULL;
	target[len] = '\0';
	name = strrchr(target, '/');
	if (name && !strncmp(name, "/zram", 5))
		return "a zram device";
	return name && !strncmp(name, "/ram", 4) ? "a RAM disk" : NULL;
}

/* The kernel writes some bytes as a backslash and three octal digits. */
static bool is_escaped(const char *p)
{
	return p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' &&
	       p[3] >= '0' && p[3] <= '7';
}

/* Who mounts an overlay may put a backslash before a comma, and the kernel writes both. */
static void unescape(char *path)
{
	char *to = path, byte;

	for (const char *from = path; *from; from++) {
		byte = *from;
		if (is_escaped(from)) {
			byte = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 |
				      (from[3] - '0'));
			from += 3;
		}
		if (byte == ',' && to > path && to[-1] == '\\')
			to--;
		*to++ = byte;
	}
	*to = '\0';
}

/*
 * proc_pid_mountinfo(5): the number of the device is the third word, and the options of the file system
 * are the last one. False: there is none, or it is not named there.
 */
static bool upper_directory(dev_t dev, char *upper, size_t size)
{
	static const char key[] = "upperdir=";
	char *line = NULL, *at;
	FILE *mounts = fopen("/proc/thread-self/mountinfo", "re");
	unsigned int one, two;
	bool found = false;
	size_t room = 0;

	while (mounts && !found && getline(&line, &room, mounts) > 0) {
		at = strstr(line, key);
		if (!at || sscanf(line, "%*u %*u %u:%u", &one, &two) != 2 ||
		    makedev(one, two) != dev)
			continue;
		at += strlen(key);
		at[strcspn(at, ", \n")] = '\0';
		unescape(at);
		found = snprintf(upper, size, "%s", at) < (int)size;
	}
	free(line);
	if (mounts)
		fclose(mounts);
	return found;
}

static const char *name_of(const char *path)
{
	const char *name = name_of_type(path);
	struct stat st;

	return name || stat(path, &st) ? name : name_of_device(st.st_dev);
}

const char *memory_fs(const char *path)
{
	const char *name = name_of(path);
	char upper[PATH_MAX];
	struct stat st;

	if (!name && !stat(path, &st) && upper_directory(st.st_dev, upper, sizeof(upper)))
		name = name_of(upper);
	return name;
}
