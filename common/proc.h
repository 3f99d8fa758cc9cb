/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_H
#define CUDAW_HOST_H
/* What the kernel says of this machine and its processes. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The first line of the file at @path, without its newline. Returns 0 or a negative errno. */
int host_read_line(const char *path, char *buf, size_t size);

/* True where the kernel has the membarrier(2) command that the gate needs. */
bool host_has_membarrier(void);

/* The word in brackets of transparent_hugepage/enabled; empty where there is none. */
void host_huge_pages(char *buf, size_t size);

/*
 * The state of a process as in ps(1), 'T' for one that is stopped, and its parent. Returns 0 where
 * there is no such process.
 */
char host_process(pid_t pid, pid_t *parent);

/*
 * The value of @name in the environment that the process was started with; empty where it has none,
 * or is not ours to look at.
 */
void host_environment(pid_t pid, const char *name, char *buf, size_t size);

/* Process ids mean the same to it. False where it is not seen. */
bool host_same_ids(pid_t pid);

/*
 * Wait until a process has ended with all its threads, whether its parent, or who traces it, has
 * waited(2) for them or not. False where it is still there after @ms.
 */
bool host_await_end(pid_t pid, int ms);

#endif
