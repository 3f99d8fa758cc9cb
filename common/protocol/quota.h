/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_QUOTA_H
#define CUDAW_QUOTA_H
/*
 * quotas: how much memory of each GPU a job may have, all its processes together, and how much it has.
 *
 * The quota of a GPU is the least of CUDAW_MEM and of what HAMi, KAI and Volcano set for a container, in the
 * form that HAMi-core reads (https://github.com/Project-HAMi/HAMi-core, get_limit_from_env() in
 * src/multiprocess/multiprocess_memory_limit.c, commit 025f456):
 *
 *	CUDA_DEVICE_MEMORY_LIMIT_I	of the GPU that CUDA in this process counts as number I; without it
 *	CUDA_DEVICE_MEMORY_LIMIT	of every GPU
 *
 *	a number of bytes, or with K, M or G, small or capital, of KiB, MiB or GiB: "4147m"; 0: no limit
 *
 * What counts is the memory of allocations, whether it is on the GPU or a pause has taken it off. The face
 * takes it before an allocation and gives it back after the free: no process asks the driver.
 *
 * The account of a job is a file of the runtime directory (quota_file.h), to which each process adds what it has,
 * and in which it sees what the others have.
 *
 * A job is what "cudaw run" starts (CUDAW_JOB). Without it, and if a scheduler's variable is the one in effect, it
 * is the tree of processes below the oldest ancestor in a row with the same value in its environment: all
 * processes of a container, for one, whatever starts them there.
 *
 * If the file cannot be used, each process counts its own memory, and what the others had when it last saw; an error
 * says so once, unless it is a shortage (shortage.h), which may pass.
 *
 * The functions keep errno.
 *
 * Threads: any. One lock of this module is held over calls to the file system, and no other is taken under it.
 * quota_take() may wait for another process, for a second in all, but not under that lock; all others never wait. A
 * caller that has a lock of its own over quota_take(), as the face has for each GPU, lets its frees wait as well.
 */
#include "common/gpu/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define QUOTA_HAMI     "CUDA_DEVICE_MEMORY_LIMIT"
#define QUOTA_HAMI_WHY "expected a number of bytes, as 4147m; it limits nothing"

/* HAMi's variables: number 0 is that of every GPU, number I + 1 that of GPU I. There are no others. */
#define QUOTA_VARIABLES (GPU_MAX + 1)
#define QUOTA_NAME_SIZE 40

/* Returns @name. */
static inline const char *quota_variable_name(int number, char name[QUOTA_NAME_SIZE])
{
	snprintf(name, QUOTA_NAME_SIZE, number ? QUOTA_HAMI "_%d" : QUOTA_HAMI, number - 1);
	return name;
}

struct quota_variable {
	char name[QUOTA_NAME_SIZE];
	const char *value; /* "": it is not set */
	size_t quota;      /* 0: none, also for 0 and for a wrong value */
	bool wrong;        /* QUOTA_HAMI_WHY */
};

/* As the environment has it now. */
void quota_variable(int number, struct quota_variable *variable);

/* True if the environment has a quota for any GPU. Read once. */
bool quota_is_on(void);

/* Of the GPU that CUDA in this process counts as @dev; SIZE_MAX: none. */
size_t quota_of(int dev);

struct gpu;

/*
 * From now on, the GPU that CUDA in this process counts as I is @gpus[I], by its uuid. What the process has of it
 * counts there, and no longer where it was.
 */
void quota_name_gpus(const struct gpu *gpus, size_t count);

/*
 * Take @bytes of @dev's quota, or fail and take none: the job would have more. No other process gets memory
 * that a successful call has taken. quota_give() gives it back.
 */
bool quota_take(int dev, size_t bytes);
void quota_give(int dev, size_t bytes);

/* Since the thread last called quota_begin(), its last quota_take() has failed. */
void quota_begin(void);
bool quota_has_refused(void);

/* What the job may still take of @dev; SIZE_MAX: there is no quota. */
size_t quota_left(int dev);

/*
 * When a library that only looks is loaded: find the account where the process sees it now. Its program may become
 * another user, or change its root directory.
 */
void quota_find(void);

/*
 * What the job of this process has of the GPU named @uuid, and its quota, which stays if no row has one. False:
 * there is no quota, or the account cannot be read.
 */
bool quota_used_of(const char *uuid, size_t *used, size_t *quota);

/* From time to time: if the file of the account was removed or closed, what the process has counts again. */
void quota_look(void);

/* In a restored process image: it has a place in the job again. */
void quota_restored(void);

/*
 * An image of the process is made (@imaged): it must not have the account open, and what it has does not count until
 * this ends.
 */
void quota_imaged(bool imaged);

/* The process ends. What it has counts until the kernel has ended it. */
void quota_end(void);

#endif
