/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RELEASE_H
#define CUDAW_RELEASE_H
/*
 * Giving the whole GPU back by the driver's own process checkpoint (cuCheckpointProcess*, r570+),
 * once our memory is unmapped: context, modules, unmanaged memory. It works from a thread of the
 * same process and without root [H200, driver 580].
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct context_list;
struct cuda_driver;

/* What a pause gives back. AS_SET: the request does not say, and CUDAW_RELEASE decides. */
enum release_choice { RELEASE_AS_SET, RELEASE_ALL, RELEASE_MEMORY };

/*
 * Find what the other functions use of the system. To be called while calls still pass the gate:
 * it takes the loader's lock, which a thread may hold that waits there, in a library's constructor.
 */
void release_find(void);

/* True if @choice is the whole GPU (the default of CUDAW_RELEASE) and the driver can release it. */
bool release_wanted(const struct cuda_driver *drv, enum release_choice choice);

/*
 * Host memory that the checkpoint of this process, whose contexts are in @list, will take: what the
 * process holds on the GPUs beyond what vmem has mapped. [H200: 390 to 490 MiB for 529 MiB held]
 */
size_t release_host_bytes(const struct context_list *list);

/*
 * Lock and checkpoint this process, whose contexts are in @list. No thread may be inside
 * the driver. 0, or the driver's error: then the process is as it was, or release_is_locked(), and
 * *@call names the function that failed.
 */
CUresult release_checkpoint(const struct cuda_driver *drv, const struct context_list *list,
			    const char **call);

/*
 * True where the driver did not unlock this process after a checkpoint that failed, or a restore:
 * until release_unlock_process() or release_restore() succeed, no other driver call returns.
 */
bool release_is_locked(void);

/* Unlock it, if it is locked. 0, or the driver's error, with *@call as above. */
CUresult release_unlock_process(const struct cuda_driver *drv, const char **call);

/*
 * GPUs of the machine when the last checkpoint was taken; 0: NVML did not say. The engine's thread.
 */
unsigned int release_gpus(void);

/*
 * Bytes by device, GPU_MAX of them, that this process held when the last checkpoint was
 * taken, beyond what vmem had mapped: contexts, and memory that is not vmem's. A guess of 1 GiB
 * where NVML does not say. Valid until the next checkpoint. The engine's thread.
 */
const size_t *release_held(void);

/*
 * True when every GPU has the memory free that release_restore() and @managed[dev] bytes after it
 * need, beside what other jobs that resume just now promised to take; or when there are none, and
 * no way to know. To be asked before every restore, with the lock: one that runs out of memory
 * cannot be tried again, and the job is lost with its context.
 */
bool release_fits(const size_t *managed);

/*
 * Keep other jobs from a resume on the GPUs that this process held something on, without waiting:
 * two that saw the same free memory would both take it. To be held from before release_fits() until
 * all memory is mapped.
 *
 * A job may be stopped while it has the lock of a GPU. So with it goes a promise (promises.h) to
 * take what the job needs there, @managed[dev] bytes and what the context does: after some seconds
 * another job goes on without the lock, where there is room for both. Where there is not it waits,
 * since the one that was stopped may go on at any time, and would be lost without that memory.
 *
 * Returns the number of GPUs locked, 0 too where the runtime directory cannot be used, so that the
 * resume goes on unprotected; or -EAGAIN, with nothing locked, where another job resumes on one of
 * them, or this process has no descriptor or memory left to look: the caller waits, as for memory.
 * The locks are files of the runtime directory (rundir.h), so they serialise the jobs of one user
 * and directory only.
 */
int release_lock(const size_t *managed);

/* Undo release_lock(), whatever it returned. */
void release_unlock(void);

/*
 * The next restore goes to other GPUs, and devices.h lists those from now on. Every GPU that the
 * process sees is in one of the @count pairs, or there are no pairs. Between release_checkpoint()
 * and release_restore().
 */
void release_remap(const CUcheckpointGpuPair *pairs, size_t count);

/* Restore what is not restored yet, and unlock. 0, or the driver's error, with *@call as above. */
CUresult release_restore(const struct cuda_driver *drv, const char **call);

#endif
