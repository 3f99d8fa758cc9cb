/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_FILES_H
#define CUDAW_MEMORY_FILES_H
/*
 * Named files of memory file systems (tmpfs, as /dev/shm) that processes map shared and writable: Python's
 * shared_memory, semaphores of its processes, NCCL's transport. CRIU keeps the path alone of a file that has a name,
 * but these are a part of what the processes know. So they are copied beside CRIU's image while nothing runs, and
 * written again before CRIU restores the processes.
 *
 * A process may have mapped a file by a name that it has no longer, as sem_open(3) does; the kernel appends " (deleted)"
 * to it. CRIU looks for that name, suffix and all, and refuses a file that has others [CRIU 4.2, seen]. So the file
 * has its former names, with the suffix, while CRIU works, and no longer.
 *
 * A directory is the root of a tmpfs in which nobody but root can replace the file of another user: root's, and
 * sticky if others may write there. The files belong to the user of the processes: root neither removes nor makes
 * what another user has.
 */
#include "checkpoint/snapshot/format.h"
#include "common/json_out.h"
#include "tools/process/criu/tree.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define MEMORY_NAMES 16 /* of a file */

struct memory_file {
	char directory[256]; /* absolute */
	char names[MEMORY_NAMES][NAME_MAX + 1];
	size_t nnames, nformer; /* the former names come last */
	dev_t dev;              /* 0: the file of the list is not here */
	ino_t ino;
	uint64_t made; /* ns since 1970; 0: not known */
	mode_t mode;   /* permissions */
	uid_t uid;
	gid_t gid;
	size_t size;
	bool reserved;           /* there is memory for all of it, as by posix_fallocate(3) */
	struct timespec written; /* when it was found */
	ino_t aside;             /* of the file that had the names before the restore; or 0 */
	pid_t holder; /* a process that has it and should not, when it was last looked for; or 0 */
};

/* Zeroed: none. */
struct memory_files {
	struct memory_file *list;
	size_t n, made; /* files that memory_files_make() has made, all names of each */
};

void memory_files_free(struct memory_files *files);

/*
 * Find those of the processes of @tree. False with @why if one of them cannot be carried, or a process outside of
 * @tree has it.
 */
bool memory_files_find(struct memory_files *files, const struct tree *tree, char *why, size_t size);

/* Whether no process outside of @tree has one of them open, or mapped in any way, also to read it. */
bool memory_files_alone(const struct memory_files *files, const struct tree *tree, char *why,
			size_t size);

/* Give them their former names (@have), or take these away. 0 or a negative errno. */
int memory_files_name(const struct memory_files *files, bool have, struct snapshot_error *error);

/* Write their contents into the directory open as @images. 0 or a negative errno; -EBUSY: somebody writes one. */
int memory_files_save(const struct memory_files *files, int images, struct snapshot_error *error);

/*
 * The list (struct memory_files) as a key of host.json; and the reverse, of what may have been written by anybody,
 * for a job of the user @owner. 0 or a negative errno.
 */
void memory_files_put(struct json_out *out, const void *files);
int memory_files_read(struct memory_files *files, const json_t *root, uid_t owner,
		      struct snapshot_error *error);

/* Whether @path is one of their names. */
bool memory_files_has(const struct memory_files *files, const char *path);

/* Remove all names of the files that no process has, except of those that have become other files. */
void memory_files_remove(const struct memory_files *files);

/*
 * Whether the directories are there and the names free, or those of the same files, which nobody has. An inode number
 * alone is no proof, as each tmpfs counts anew. 0 or a negative errno.
 */
int memory_files_check(const struct memory_files *files, struct snapshot_error *error);

/*
 * Make them, with all names and the contents in the directory open as @images. They belong to root until CRIU has
 * opened them: then memory_files_give() gives them to their users, and takes the former names away. Files that the job
 * has left there have other names until then. 0 or a negative errno; memory_files_unmake() removes what was made, and
 * gives these their names back.
 */
int memory_files_make(struct memory_files *files, int images, struct snapshot_error *error);
int memory_files_give(const struct memory_files *files, struct snapshot_error *error);
void memory_files_unmake(struct memory_files *files);

#endif
