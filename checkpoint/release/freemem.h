/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FREEMEM_H
#define CUDAW_FREEMEM_H
/*
 * The free memory of the GPUs, and who has the rest; a child process asks NVML.
 *
 * While the driver's checkpoint holds this process, NVML blocks in it; and a driver restore that
 * runs out of memory cannot be tried again: it returns CUDA_ERROR_OPERATING_SYSTEM from then on
 * [H200, driver 580.159]. So another process asks before the restore: cudaw-freemem, a small
 * program in the directory of the faces (freemem_main.c), prints the answer.
 *
 * The job gets no SIGCHLD for it, and its wait() does not see it. That holds for a process cloned
 * with exit signal 0, but only until execve(), which sets the signal to SIGCHLD. So a process of
 * that kind stands between, as the parent of cudaw-freemem, and waits for it. The environment of
 * cudaw-freemem has nothing but LD_LIBRARY_PATH.
 */
#include "common/gpu/gpu.h"

#include <stddef.h>

#define FREEMEM_PROGRAM "cudaw-freemem"

/* Find the program, and keep it open. Takes the loader's lock: see release_find(). */
void freemem_find(void);

/*
 * Put the free bytes of the @count GPUs @gpus into @bytes. 0; -ENOSYS if there is no way to know,
 * for example if the program has denied itself the system calls for it (seccomp) or what they need (chroot), or NVML
 * never knew; another negative errno if there was no memory, descriptor or process to ask with, or no answer though
 * there was one before, which may pass: retry. After an error @bytes are undefined. Not for a thread of the program: it
 * waits for the child.
 */
int freemem_query(const struct gpu *gpus, int count, size_t *bytes);

/*
 * Put into @text which other processes have most of the memory of @gpu: "12 (train) has 3.0 GiB".
 * Empty if that is not known. As above, not for a thread of the program.
 */
void freemem_holders(const struct gpu *gpu, char *text, size_t size);

#endif
