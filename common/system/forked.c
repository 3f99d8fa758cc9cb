/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/forked.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FD_DIR      "/proc/thread-self/fd"
#define DIRECTORIES 2 /* the one that the job leaves, and the next one */

/* A child reads the path only if @set is true: in the child it may be half written. */
struct place {
	bool set;
	char path[PATH_MAX];
};

static struct place prefixes[FORKED_PREFIXES];
static struct place directories[DIRECTORIES];
static int last; /* index of the directory that was set last */

static void set(struct place *place, const char *path)
{
	__atomic_store_n(&place->set, false, __ATOMIC_SEQ_CST);
	snprintf(place->path, sizeof(place->path), "%s", path);
	__atomic_store_n(&place->set, true, __ATOMIC_SEQ_CST);
}

void forked_watch(const char *prefix)
{
	for (struct place *p = prefixes; p < prefixes + FORKED_PREFIXES; p++)
		if (!p->set) {
			set(p, prefix);
			return;
		}
}

void forked_watch_directory(const char *path)
{
	char real[PATH_MAX];

	if (!realpath(path, real) ||
	    (directories[last].set && !strcmp(directories[last].path, real)))
		return;
	last = (last + 1) % DIRECTORIES;
	set(&directories[last], real);
}

void forked_leave_directory(const char *path)
{
	char real[PATH_MAX];

	for (int i = 0; realpath(path, real) && i < DIRECTORIES; i++)
		if (directories[i].set && !strcmp(directories[i].path, real))
			__atomic_store_n(&directories[i].set, false, __ATOMIC_SEQ_CST);
}

/* The part of @path after @place; NULL if @path is elsewhere. */
static const char *rest_of(const char *path, const struct place *place)
{
	size_t length;

	if (!__atomic_load_n(&place->set, __ATOMIC_RELAXED))
		return NULL;
	length = strlen(place->path);
	return strncmp(path, place->path, length) ? NULL : path + length;
}

static bool begins_as_watched(const char *path)
{
	for (size_t i = 0; i < FORKED_PREFIXES; i++)
		if (rest_of(path, &prefixes[i]))
			return true;
	return false;
}

/* True for a watched directory, and for a file with a name of ours in one. */
static bool is_in_directory(const char *path)
{
	static const char *const ours[] = {"data-", "index-", "manifest.", "in-use"};

	for (size_t i = 0; i < DIRECTORIES; i++) {
		const char *rest = rest_of(path, &directories[i]);

		if (rest && !*rest)
			return true;
		if (!rest || *rest++ != '/' || strchr(rest, '/'))
			continue;
		for (size_t k = 0; k < sizeof(ours) / sizeof(ours[0]); k++)
			if (!strncmp(rest, ours[k], strlen(ours[k])))
				return true;
	}
	return false;
}

/* A line of /proc/thread-self/maps: "begin-end perms offset device inode   path". */
static void replace_mapping(const char *line)
{
	const char *path = strchr(line, '/');
	unsigned long begin, end;
	char *rest;

	if (!path || !begins_as_watched(path))
		return;
	begin = strtoul(line, &rest, 16);
	if (*rest != '-')
		return;
	end = strtoul(rest + 1, NULL, 16);
	mmap((void *)begin, end - begin, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void replace_mappings(void)
{
	int fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
	char text[PATH_MAX + 256]; /* the longest line fits */
	size_t held = 0;
	ssize_t n;

	if (fd < 0)
		return;
	while (held < sizeof(text) - 1 &&
	       (n = read(fd, text + held, sizeof(text) - 1 - held)) > 0) {
		char *line = text, *newline;

		text[held + n] = '\0';
		while ((newline = strchr(line, '\n'))) {
			*newline = '\0';
			replace_mapping(line);
			line = newline + 1;
		}
		held = strlen(line);
		memmove(text, line, held);
	}
	close(fd);
}

static void replace_file(int null, const char *number)
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
	if (begins_as_watched(path) || is_in_directory(path))
		dup3(null, fd, O_CLOEXEC);
}

static void replace_files(void)
{
	char entries[4096] __attribute__((aligned(__alignof__(struct dirent64))));
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int dir = open(FD_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	while (null >= 0 && dir >= 0 && (n = getdents64(dir, entries, sizeof(entries))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (struct dirent64 *)(entries + at);

			replace_file(null, entry->d_name);
			at += entry->d_reclen;
		}
	if (dir >= 0)
		close(dir);
	if (null >= 0)
		close(null);
}

void forked_let_go(void)
{
	replace_files();
	replace_mappings();
}
