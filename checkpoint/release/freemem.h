/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FREEMEM_H
#define CUDAW_FREEMEM_H
/*
 * How much memory the GPUs have free, asked of NVML by a child process.
 *
 * While the driver's checkpoint holds this process, NVML blocks in it; and a driver restore that
 * runs out of memory cannot be tried again: it returns CUDA_ERROR_OPERATING_SYSTEM from then on
 * [H200, driver 580.159]. So the question is asked before, from outside: cudaw-freemem, a small
 * program in the directory of the faces (freemem_main.c), prints the free bytes of each UUID.
 *
 * The program gets no SIGCHLD and its wait() sees nothing of it. A process cloned with exit signal
 * 0 is such a one, but only until it calls execve(), which sets the signal to SIGCHLD: so the child
 * has a parent of its own in between, of that kind, that waits for it. In its environment is
 * nothing but LD_LIBRARY_PATH.
 */
#include "common/gpu.h"

#include <stddef.h>

#define FREEMEM_PROGRAM "cudaw-freemem"

/* Find the program, by the loader's lock: see release_find(). */
void freemem_find(void);

/*
 * Put the free bytes of the @count GPUs @gpus into @bytes. 0; -ENOSYS if there is no way to know,
 * for example if the program has denied itself the system calls for it (seccomp); another negative
 * errno if there was no memory, descriptor or process to ask with, which may pass: retry. After an
 * error @bytes are undefined. Not for a thread of the program: it waits for the child.
 */
int freemem_query(const struct gpu *gpus, int count, size_t *bytes);

#endif
