/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CUDA_USE_H
#define CUDAW_CUDA_USE_H
/*
 * Which processes use CUDA, and whether through cudaw: by the libraries that /proc/PID/maps lists.
 * A library of cudaw is recognised by its ELF note (common/find.h), whatever its name.
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
};

/* A forked child maps what its parent does, and may not be able to use it. */
enum cuda_use cuda_use(pid_t pid);

/*
 * Another process that uses CUDA, as @uses confirms, and may share GPU memory with @process, so that the driver's
 * checkpoint of one of them alone would break both. From outside nobody can see such memory. So
 * this looks for the ways by which processes agree on it: the other is an ancestor or descendant,
 * is in the same process group, maps a file for writing that @process maps for writing, or is the
 * other end of one of its Unix or TCP sockets. Returns its PID and a text in @how ("they share
 * /dev/shm/x"); 0: there is none.
 */
pid_t cuda_use_peer(const struct process *process, bool (*uses)(pid_t pid), char *how, size_t size);

#endif
