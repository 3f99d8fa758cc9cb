/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DESCRIPTORS_H
#define CUDAW_DESCRIPTORS_H
/*
 * The pipes, sockets, GPUs, timers and rarer kinds that processes have open, by the links in /proc/PID/fd. A process
 * that /proc does not show adds nothing.
 */
#include "tools/process/criu/tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum descriptor_kind {
	DESCRIPTOR_OTHER,
	DESCRIPTOR_PIPE,
	DESCRIPTOR_SOCKET,
	DESCRIPTOR_GPU,
	DESCRIPTOR_TIMER,   /* timerfd_create(2) */
	DESCRIPTOR_PROCESS, /* pidfd_open(2) */
	DESCRIPTOR_RENAMED, /* a file that has lost the name by which it was opened, and has another */
	DESCRIPTOR_REFUSED, /* CRIU does not take it; @target says what it is */
};

#define DESCRIPTOR_GPU_PATH "/dev/nvidia" /* the beginning of the paths of GPUs */

struct descriptor {
	pid_t pid;
	int fd;
	bool reads, writes;
	ino_t inode;  /* of a pipe or socket, else 0 */
	dev_t device; /* of a pipe that has a path (fifo(7)), else 0 */
	enum descriptor_kind kind;
	char target[64]; /* path of a GPU, or as the kernel calls it */
};

/* Zeroed before the first use; the caller frees @all. */
struct descriptors {
	struct descriptor *all;
	size_t n, room;
	bool short_of_memory; /* or of descriptors: some are missing */
};

/* Add those of the process @pid. */
void descriptors_add_process(struct descriptors *list, pid_t pid);

/* Add those of the processes of @tree. */
void descriptors_add_tree(struct descriptors *list, const struct tree *tree);

/* Add those of all processes that can be seen, except this one and those in @tree. */
void descriptors_add_others(struct descriptors *list, const struct tree *tree);

/* The first one of the pipe @end that reads if @end does not, and writes if @end does not; NULL: none. */
const struct descriptor *descriptors_far_end(const struct descriptors *list,
					     const struct descriptor *end);

/* The first one of the socket @inode; NULL: none, or @inode is 0. */
const struct descriptor *descriptors_socket(const struct descriptors *list, ino_t inode);

/* The first one of this kind of the process @pid; NULL: none. */
const struct descriptor *descriptors_of(const struct descriptors *list, enum descriptor_kind kind,
					pid_t pid);

#endif
