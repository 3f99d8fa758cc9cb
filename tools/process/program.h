/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROGRAM_H
#define CUDAW_PROGRAM_H
/*
 * Which program a process runs. A process keeps its PID and its start time when it starts another
 * program (execve(2)), or the same one anew, but no memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct program {
	dev_t dev; /* of the file */
	ino_t ino;
	/* What the kernel told the program at its start: random addresses among others. */
	char auxv[2048];
	size_t size;
};

/*
 * Find the program of the process @pid, whose memory this process may read. Returns 0 or a negative
 * errno.
 */
int program_find(pid_t pid, struct program *program);

/*
 * True if neither has replaced the other. Where addresses are not random (setarch -R), the same file
 * that was started anew is taken for the same program.
 */
bool program_is_same(const struct program *a, const struct program *b);

#endif
