/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MAPS_H
#define CUDAW_MAPS_H
/* The mappings of a process, one after the other (proc_pid_maps(5)). */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct maps {
	/* Of the mapping that maps_next() has found: */
	unsigned long begin, end;
	unsigned long offset; /* in the file; bytes */
	char rights[5];       /* "rwxp", or s for p: shared; - for what it has not */
	dev_t device;
	ino_t inode;
	char *path; /* of the file, as the kernel writes it; NULL: it has none. The caller may change it. */

	FILE *file;
	char *line;
	size_t room;
	int error;
};

/* Those of @pid; 0: of this process. maps_close() follows in any case. 0 or a negative errno. */
int maps_open(struct maps *maps, pid_t pid);

/* False at the end. */
bool maps_next(struct maps *maps);

/* 0, or a negative errno if not all could be read that were asked for. */
int maps_close(struct maps *maps);

/*
 * The first file of @pid's mappings whose path, or, for a @prefix without a slash, whose name begins with @prefix, in
 * @path. 1: found; 0: there is none; or a negative errno: not all mappings could be read.
 */
int maps_find(pid_t pid, const char *prefix, char path[PATH_MAX]);

/*
 * What the kernel appends to the path of an open or mapped file, or of a working directory, that has this name no
 * longer, and whether a path ends so. A file that is there may be called so, too.
 */
#define MAPS_FORMER " (deleted)"
bool maps_is_former(const char *path);

#endif
