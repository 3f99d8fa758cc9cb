/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROC_H
#define CUDAW_PROC_H
/* Facts about this machine and its processes, from the kernel. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The first line of the file at @path, without its newline. Returns 0 or a negative errno. */
int host_read_line(const char *path, char *buf, size_t size);

/* True if the kernel has the membarrier(2) command that the gate prefers. */
bool host_has_membarrier(void);

/*
 * Whether the thread @task ("/proc/thread-self", "/proc/1/task/1") has a filter of system calls (seccomp(2)), which its
 * new threads and processes inherit. It is read from a file, as a filter may answer prctl(2) with a signal.
 */
bool host_is_filtered(const char *task);

/* The word in brackets of transparent_hugepage/enabled; empty if there is none. */
void host_huge_pages(char *buf, size_t size);

/*
 * The state of a process as in ps(1), 'T' if it is stopped, and its parent. Returns 0 if there is
 * no such process.
 */
char host_process(pid_t pid, pid_t *parent);

/*
 * The value of @name in the environment that the process was started with; empty if it has none, or
 * if we may not read it.
 */
void host_environment(pid_t pid, const char *name, char *buf, size_t size);

/* Its command line (0: our own), cut, with spaces between the arguments; empty if we may not read it. */
void host_command(pid_t pid, char *buf, size_t size);

/* True if the process is in our PID namespace. False if we do not see it. */
bool host_same_ids(pid_t pid);

/* True if no process or thread has the id. Needs no descriptor. */
bool host_id_is_free(pid_t pid);

/*
 * Wait until a process has ended with all its threads, whether or not its parent or tracer has
 * called wait(2). False if it is still there after @ms.
 */
bool host_await_end(pid_t pid, double ms);

#endif
