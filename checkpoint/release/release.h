/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RELEASE_H
#define CUDAW_RELEASE_H
/*
 * Gives the whole GPU back by the driver's own process checkpoint (cuCheckpointProcess*, r570+),
 * once our memory is unmapped: contexts, modules, memory left to the driver. It works from a thread
 * of the same process and without root [H200, driver 580].
 */
#include "common/gpu/nvml.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct context_list;
struct cuda_driver;

/* What a pause gives back. AS_SET: the request does not say, and CUDAW_RELEASE decides. */
enum release_choice { RELEASE_AS_SET, RELEASE_ALL, RELEASE_MEMORY };

/*
 * Find the libraries and programs that the other functions use. Call it before the gate closes: it
 * takes the loader's lock, and a thread in a library's constructor may hold that lock while it
 * waits at the gate.
 */
void release_find(void);

/* True if @choice is the whole GPU (the default of CUDAW_RELEASE). */
bool release_asked(enum release_choice choice);

/* The same, and the driver can release it. */
bool release_wanted(const struct cuda_driver *drv, enum release_choice choice);

/*
 * Host memory that the checkpoint of this process, whose contexts are in @list, will take: what the
 * process holds on the GPUs beyond what vmem has mapped. [H200: 390 to 490 MiB for 529 MiB held]
 */
size_t release_host_bytes(const struct context_list *list);

/* True if NVML says how much that is, on each GPU of the contexts in @list. */
bool release_is_measured(const struct context_list *list);

/*
 * Lock and checkpoint this process, whose contexts are in @list. No thread may be inside the
 * driver. 0, or the driver's error: then the process is unchanged, or release_is_locked(), and
 * *@call names the function that failed, or the reason why the process has to keep its contexts: the
 * driver has no checkpoint, a library (beside.h), or nobody can see which libraries there are.
 */
CUresult release_checkpoint(const struct cuda_driver *drv, const struct context_list *list,
			    const char **call);

/* What a person should know about @error and the *@call of release_checkpoint(), or "". */
const char *release_hint(const char *call, CUresult error);

/*
 * True if the driver did not unlock this process after a failed checkpoint or after a restore.
 * Until release_unlock_process() or release_restore() succeeds, no other driver call returns. Any thread.
 */
bool release_is_locked(void);

/* Unlock it, if it is locked. 0, or the driver's error, with *@call as above. */
CUresult release_unlock_process(const struct cuda_driver *drv, const char **call);

/*
 * Number of GPUs of the machine at the last checkpoint; 0: not known. *@uuids, of GPU_MAX entries, are theirs, empty if
 * not known. The engine's thread.
 */
unsigned int release_gpus(const char (**uuids)[NVML_UUID_SIZE]);

/*
 * Bytes by device (GPU_MAX entries) that this process held at the last checkpoint, beyond what vmem
 * had mapped: contexts, and memory left to the driver. If NVML does not know them, a guess: 1 GiB and
 * what was left to the driver, but no more than all processes had of the GPU.
 * Valid until the next checkpoint. The engine's thread, or the control thread while no operation moves
 * memory.
 */
const size_t *release_held(void);

/* What a GPU lacks for a resume. */
struct gpu_lack {
	int dev;             /* -1: nothing, or it is not known which GPU lacks memory */
	size_t needed, free; /* bytes; free is SIZE_MAX if it is not known */
	int error; /* a negative errno: why what is free on the GPUs could not be asked for; or 0 */
};

/*
 * True if every GPU has enough free memory for release_restore() and @carried[dev] bytes after it,
 * beside the promises of other jobs that resume now; or if the free memory cannot be known, and
 * there are no such promises. Ask before every restore, with the lock held: a restore that runs out
 * of memory cannot be tried again, and the job is lost with its context. If it is false, @lack says why.
 */
bool release_fits(const size_t *carried, struct gpu_lack *lack);

/*
 * Keep other jobs from a resume on the GPUs on which this process held memory at the driver's checkpoint,
 * or takes carried memory after it, without waiting: two jobs that see the same free memory would both take
 * it. Hold the locks from before release_fits() until all memory is mapped.
 *
 * A job may be stopped while it has the lock of a GPU. So the lock comes with a promise
 * (promises.h) to take what the job needs there: @carried[dev] bytes and those of the context.
 * After some seconds another job goes on without the lock, if there is room for both. If there is
 * not, it waits: the stopped job may go on at any time, and would be lost without that memory.
 *
 * Returns the number of locked GPUs. It is 0 also if the runtime directory cannot be used, and then
 * the resume goes on unprotected. Returns -EAGAIN, with nothing locked, if another job resumes on
 * one of the GPUs, or if this process has no descriptor or memory left to look, which @lack says then:
 * the caller waits, as for GPU memory. The locks are files of the runtime directory (rundir.h), so they serialise
 * only the jobs of one user and directory.
 */
int release_lock(const size_t *carried, struct gpu_lack *lack);

/* Undo release_lock(), whatever its result. */
void release_unlock(void);

/*
 * The next restore goes to other GPUs, and devices.h lists those from now on. Every GPU of
 * the machine, if it is known, is in one of the @count pairs, or there are no pairs. Between release_checkpoint()
 * and release_restore().
 */
void release_remap(const CUcheckpointGpuPair *pairs, size_t count);

/* Restore the process, unless that is done, and unlock it. 0, or the driver's error and *@call. */
CUresult release_restore(const struct cuda_driver *drv, const char **call);

#endif
