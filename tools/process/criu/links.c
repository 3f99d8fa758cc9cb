/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/links.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* the kernel's MAXSYMLINKS */

struct walk {
	int at;              /* O_PATH; -1 before the root directory */
	char rest[PATH_MAX]; /* from there on */
	int links;
	char *link; /* of the caller */
};

static void go_to(struct walk *w, int fd)
{
	if (w->at >= 0)
		close(w->at);
	w->at = fd;
}

/* Take the first @len bytes off the rest of the path, and the slashes after them. */
static void take_off(struct walk *w, size_t len)
{
	len += strspn(w->rest + len, "/");
	memmove(w->rest, w->rest + len, strlen(w->rest + len) + 1);
}

static int go_to_root(struct walk *w)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	go_to(w, fd);
	take_off(w, 0);
	return 0;
}

static bool only_root_writes(int dir)
{
	struct stat st;

	return !fstat(dir, &st) && st.st_uid == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

static void name_link(struct walk *w, int link)
{
	char name[64];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", link);
	n = readlink(name, w->link, PATH_MAX - 1);
	w->link[n > 0 ? n : 0] = '\0';
}

/* The link in the directory of the walk, open as @link: put what it says before the rest. */
static int follow(struct walk *w, int link, uid_t owner)
{
	char path[2 * PATH_MAX];
	ssize_t n;

	if (owner != 0 || !only_root_writes(w->at)) {
		name_link(w, link);
		return -ELOOP;
	}
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	n = readlinkat(link, "", path, PATH_MAX);
	if (n < 0)
		return -errno;
	n += snprintf(path + n, sizeof(path) - n, "/%s", w->rest);
	if (n >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(w->rest, path, n + 1);
	return 0;
}

/* O_PATH alone would not mount what is mounted when it is used (autofs). */
static int enter(struct walk *w, const char *name)
{
	int fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	go_to(w, fd);
	return 0;
}

/* Go on by one name. */
static int step(struct walk *w)
{
	size_t len = strcspn(w->rest, "/");
	char name[NAME_MAX + 1];
	struct stat st;
	int fd, ret = 0;

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	snprintf(name, sizeof(name), "%.*s", (int)len, w->rest);
	take_off(w, len);
	fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		ret = -errno;
	else if (S_ISLNK(st.st_mode))
		ret = follow(w, fd, st.st_uid);
	else if (S_ISDIR(st.st_mode))
		ret = enter(w, name);
	else
		go_to(w, fd);
	if (w->at != fd)
		close(fd);
	return ret;
}

int links_stat(const char *path, struct stat *st, char link[PATH_MAX])
{
	struct walk w = {.at = -1, .link = link};
	int ret = 0;

	*link = '\0';
	if (snprintf(w.rest, sizeof(w.rest), "%s", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	while (!ret && *w.rest)
		ret = *w.rest == '/' ? go_to_root(&w) : step(&w);
	if (!ret && fstat(w.at, st))
		ret = -errno;
	go_to(&w, -1);
	return ret;
}
