/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CUDA_USE_H
#define CUDAW_CUDA_USE_H
/*
 * Which processes use CUDA, and whether through cudaw: by the libraries that /proc/PID/maps lists.
 * A library of cudaw is recognised by its ELF note (common/find/find.h), whatever its name.
 */
#include "tools/process/process.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum cuda_use {
	CUDA_USE_NONE,   /* no CUDA library, or no such process */
	CUDA_USE_NATIVE, /* the real libcuda, and no library of cudaw */
	CUDA_USE_CUDAW,  /* a library of cudaw */
	CUDA_USE_HIDDEN, /* /proc does not show it to this user */
	CUDA_USE_SLOW,   /* looking at it takes too long */
};

/*
 * A forked child maps what its parent does, and may not be able to use it. The libraries may be on
 * a file system of the user's: a child process with a time limit looks at them (limited.h).
 */
enum cuda_use cuda_use(pid_t pid);

/*
 * The same of @n processes, in @uses, by one child. It begins anew after a process at which it hangs;
 * after CUDA_USE_HANGS of them all others are CUDA_USE_SLOW, too.
 */
#define CUDA_USE_HANGS 3

void cuda_use_all(const pid_t *pids, size_t n, enum cuda_use *uses);

/* The processes that /proc lists: at most @max, in @pids. Returns their number. */
#define CUDA_USE_PIDS 65536

size_t cuda_use_pids(pid_t *pids, size_t max);

/*
 * Another process that uses CUDA, as @uses confirms, and may share GPU memory with @process, so that
 * the driver's checkpoint of one of them alone would break both. From outside nobody can see such memory. So
 * this looks for the ways by which processes agree on it: the other is an ancestor or descendant,
 * is in the same process group, maps a file for writing that @process maps for writing, or is the
 * other end of one of its Unix or TCP sockets. Returns its PID and a text in @how ("they share
 * /dev/shm/x"); 0: there is none.
 */
pid_t cuda_use_sharer(const struct process *process, bool (*uses)(pid_t pid), char *how,
		      size_t size);

#endif
