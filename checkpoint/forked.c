/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/forked.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FD_DIR "/proc/self/fd"

static bool begins_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

/* A line of /proc/self/maps: "begin-end perms offset device inode   path". */
static void replace_mapping(const char *line, const char *prefix)
{
	const char *path = strchr(line, '/');
	unsigned long begin, end;
	char *rest;

	if (!path || !begins_with(path, prefix))
		return;
	begin = strtoul(line, &rest, 16);
	if (*rest != '-')
		return;
	end = strtoul(rest + 1, NULL, 16);
	mmap((void *)begin, end - begin, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void replace_mappings(const char *prefix)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char text[PATH_MAX + 256]; /* the longest line fits */
	size_t held = 0;
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = read(fd, text + held, sizeof(text) - 1 - held)) > 0) {
		char *line = text, *newline;

		text[held + n] = '\0';
		while ((newline = strchr(line, '\n'))) {
			*newline = '\0';
			replace_mapping(line, prefix);
			line = newline + 1;
		}
		held = strlen(line);
		memmove(text, line, held);
	}
	close(fd);
}

static void replace_file(int null, const char *number, const char *prefix)
{
	char link[sizeof(FD_DIR) + NAME_MAX + 1], path[PATH_MAX];
	int fd = atoi(number), flags = fcntl(fd, F_GETFD);
	ssize_t length;

	if (flags < 0 || !(flags & FD_CLOEXEC))
		return;
	snprintf(link, sizeof(link), FD_DIR "/%.255s", number);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return;
	path[length] = '\0';
	if (begins_with(path, prefix))
		dup3(null, fd, O_CLOEXEC);
}

static void replace_files(const char *prefix)
{
	char entries[4096] __attribute__((aligned(__alignof__(struct dirent64))));
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int dir = open(FD_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	while (null >= 0 && dir >= 0 && (n = getdents64(dir, entries, sizeof(entries))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (struct dirent64 *)(entries + at);

			replace_file(null, entry->d_name, prefix);
			at += entry->d_reclen;
		}
	if (dir >= 0)
		close(dir);
	if (null >= 0)
		close(null);
}

void forked_let_go(const char *prefix)
{
	replace_files(prefix);
	replace_mappings(prefix);
}
