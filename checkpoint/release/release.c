/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release/release.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/host/promises.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/freemem.h"
#include "common/processes/beside.h"
#include "common/clock.h"
#include "common/gpu/gpu.h"
#include "common/gpu/nvml.h"
#include "common/system/ownfd.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "common/system/shortage.h"
#include "common/text.h"
#include "vmem/cuda_driver.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "release: "
#include "common/log.h"

#define LOCK_TIMEOUT_MS 10000
#define LOCK_SUFFIX     ".lock"
#define LOCK_NAME_SIZE  (NVML_UUID_SIZE + sizeof(LOCK_SUFFIX) - 1)
#define PATIENCE_MS     2000 /* with another job that resumes; most resumes take less */

/* Bytes of a context, at most, if NVML does not know this process [H200: 529 MiB]. */
#define CONTEXT_GUESS (1UL << 30)
#define HOST_GUESS    (512UL << 20) /* of host memory for it, while it is checkpointed */

/* Bytes that this process held on each GPU at the last checkpoint; the engine's thread only. */
static size_t held[GPU_MAX];
static unsigned int machine_gpus; /* number at the last checkpoint; 0: not known */
static char machine_uuids[GPU_MAX][NVML_UUID_SIZE]; /* theirs; empty: not known */
static double kept_out_since; /* clock_ms(): another job has the lock since; 0: none has */
static CUcheckpointGpuPair remap[GPU_MAX];
static unsigned int nremap;
/*
 * The process is locked, and its context is there: an unlock failed, and must be tried again. No
 * other driver call returns before it succeeds.
 */
static bool process_locked;

/* The lock file of a GPU that was held, and the promise on it while it is open. */
struct gpu_lock {
	char name[LOCK_NAME_SIZE];
	CUdevice dev;
	struct ownfd own;
	struct promise promise;
};

static struct gpu_lock locks[GPU_MAX];
static int nlocks; /* number of open ones */

static bool can_checkpoint(const struct cuda_driver *drv)
{
	return drv->cuCheckpointProcessLock && drv->cuCheckpointProcessCheckpoint &&
	       drv->cuCheckpointProcessRestore && drv->cuCheckpointProcessUnlock;
}

bool release_asked(enum release_choice choice)
{
	const char *word = choice == RELEASE_AS_SET ? setting_word(SETTING_RELEASE) : NULL;

	return choice != RELEASE_MEMORY && !(word && !strcmp(word, "memory"));
}

bool release_wanted(const struct cuda_driver *drv, enum release_choice choice)
{
	return release_asked(choice) && can_checkpoint(drv);
}

void release_find(void)
{
	nvml_open();
	freemem_find();
}

static bool has_context(const struct context_list *list, size_t dev)
{
	for (size_t i = 0; i < list->count; i++)
		if ((size_t)list->items[i].dev == dev)
			return true;
	return false;
}

/*
 * What the process may hold on @dev, on which it has a context, and nothing of vmem's any more: no more
 * than all processes together.
 */
static size_t guess_held(const struct cuda_driver *drv, const struct context_list *list, size_t dev)
{
	size_t guess = CONTEXT_GUESS + driver_memory_total(), free, total;

	for (size_t i = 0; i < list->count; i++)
		if ((size_t)list->items[i].dev == dev &&
		    !drv->cuCtxSetCurrent(list->items[i].ctx) &&
		    !drv->cuMemGetInfo_v2(&free, &total) && total - free < guess)
			guess = total - free;
	drv->cuCtxSetCurrent(NULL);
	return guess;
}

/* The driver may have memory of the program on a device without a context, too. */
static void measure(const struct cuda_driver *drv, const struct context_list *list)
{
	size_t ngpus;
	const struct gpu *gpus = devices_all(&ngpus);

	memset(held, 0, sizeof(held));
	if (nvml_device_count(&machine_gpus))
		machine_gpus = 0;
	for (unsigned int i = 0; i < GPU_MAX; i++)
		if (i >= machine_gpus || nvml_device_uuid(i, machine_uuids[i]))
			*machine_uuids[i] = '\0';
	for (size_t dev = 0; dev < ngpus; dev++)
		if (nvml_process_memory(gpus[dev].uuid, &held[dev]))
			held[dev] = has_context(list, dev) ? guess_held(drv, list, dev) : 0;
}

/* What the process holds on @dev beyond vmem's; -ENOSYS if NVML does not know the process. */
static int unmapped_bytes(CUdevice dev, size_t *bytes)
{
	size_t ngpus;
	const struct gpu *gpus = devices_all(&ngpus);
	struct vmem_stats stats;

	if ((size_t)dev >= ngpus || nvml_process_memory(gpus[dev].uuid, bytes))
		return -ENOSYS;
	vmem_get_device_stats(dev, &stats);
	*bytes -= stats.mapped < *bytes ? stats.mapped : *bytes;
	return 0;
}

bool release_is_measured(const struct context_list *list)
{
	size_t bytes;

	for (size_t i = 0; i < list->count; i++)
		if (unmapped_bytes(list->items[i].dev, &bytes))
			return false;
	return true;
}

size_t release_host_bytes(const struct context_list *list)
{
	bool known = true;
	size_t sum = 0, ngpus;

	devices_all(&ngpus);
	for (size_t dev = 0; dev < ngpus; dev++) {
		size_t bytes = 0;

		if (unmapped_bytes((CUdevice)dev, &bytes) && has_context(list, dev)) {
			bytes = HOST_GUESS;
			known = false;
		}
		sum += bytes;
	}
	return known ? sum : sum + driver_memory_total();
}

/* Other threads ask for it. */
static void set_locked(bool locked)
{
	__atomic_store_n(&process_locked, locked, __ATOMIC_RELAXED);
}

static const char checkpoint_call[] = "cuCheckpointProcessCheckpoint";
static char beside[BESIDE_SIZE]; /* the library because of which there is no checkpoint */

CUresult release_checkpoint(const struct cuda_driver *drv, const struct context_list *list,
			    const char **call)
{
	CUcheckpointLockArgs lock = {.timeoutMs = LOCK_TIMEOUT_MS};
	CUcheckpointCheckpointArgs checkpoint = {0};
	const char *unlock;
	CUresult error;
	int found;

	*call = "the driver has no checkpoint (r570 and later have it)";
	if (!can_checkpoint(drv))
		return CUDA_ERROR_NOT_SUPPORTED;
	measure(drv, list);
	*call = "cuCheckpointProcessLock";
	error = drv->cuCheckpointProcessLock(getpid(), &lock);
	if (error)
		return error;
	/* Only now: a thread that is not inside the driver may have loaded it just before. */
	found = beside_driver(0, beside);
	if (found) {
		*call = found > 0 ? beside : "/proc/thread-self/maps cannot be read";
		error = found > 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_OPERATING_SYSTEM;
	} else {
		*call = checkpoint_call;
		error = drv->cuCheckpointProcessCheckpoint(getpid(), &checkpoint);
	}
	set_locked(error != CUDA_SUCCESS);
	if (process_locked)
		release_unlock_process(drv, &unlock);
	return error;
}

const char *release_hint(const char *call, CUresult error)
{
	if (call == beside)
		return " (the driver's checkpoint would break the work of this library)";
	/* The second is what driver 580.159 says of a process with __managed__ variables [H200]. */
	return call == checkpoint_call &&
			       (error == CUDA_ERROR_NOT_SUPPORTED || error == CUDA_ERROR_UNKNOWN)
		       ? " (the program may have something that the driver cannot checkpoint, "
			 "such as __managed__ variables)"
		       : "";
}

bool release_is_locked(void)
{
	return __atomic_load_n(&process_locked, __ATOMIC_RELAXED);
}

CUresult release_unlock_process(const struct cuda_driver *drv, const char **call)
{
	CUcheckpointUnlockArgs unlock = {0};
	CUresult error;

	if (!process_locked)
		return CUDA_SUCCESS;
	*call = "cuCheckpointProcessUnlock";
	error = drv->cuCheckpointProcessUnlock(getpid(), &unlock);
	set_locked(error != CUDA_SUCCESS);
	return error;
}

unsigned int release_gpus(const char (**uuids)[NVML_UUID_SIZE])
{
	*uuids = machine_uuids;
	return machine_gpus;
}

const size_t *release_held(void)
{
	return held;
}

static int compare_names(const void *a, const void *b)
{
	const struct gpu_lock *one = a, *other = b;

	return strcmp(one->name, other->name);
}

static bool was_checkpointed(void)
{
	for (size_t dev = 0; dev < GPU_MAX; dev++)
		if (held[dev])
			return true;
	return false;
}

/* List the lock files of the GPUs that a restore takes memory of, in the same order in all jobs. */
static int list_locks(const size_t *carried)
{
	size_t ngpus;
	const struct gpu *gpus = devices_all(&ngpus);
	int count = 0;

	if (!was_checkpointed())
		return 0;
	for (size_t dev = 0; dev < ngpus; dev++) {
		if (!held[dev] && !carried[dev])
			continue;
		locks[count].dev = (CUdevice)dev;
		snprintf(locks[count++].name, LOCK_NAME_SIZE, "%s" LOCK_SUFFIX, gpus[dev].uuid);
	}
	qsort(locks, count, sizeof(*locks), compare_names);
	return count;
}

/*
 * Another job has the lock. After a while, open the file without the lock, if that job has promised
 * how much it takes. One that could not promise is waited for.
 */
static int pass_by(int dir, const char *name)
{
	uint64_t promised = 0, all;
	int fd;

	if (!kept_out_since)
		kept_out_since = clock_ms();
	if (clock_ms() - kept_out_since < PATIENCE_MS)
		return -EAGAIN;
	fd = rundir_open_lock(dir, name);
	if (fd < 0 || (!promise_others(fd, 0, &promised, &all) && promised))
		return fd;
	close(fd);
	return -EAGAIN;
}

/* Lock the GPU, and promise to take @bytes. 0; -EAGAIN: not now; or another negative errno. */
static int lock_gpu(int dir, struct gpu_lock *lock, size_t bytes)
{
	int fd = rundir_lock(dir, lock->name), error;

	if (fd == -EAGAIN)
		fd = pass_by(dir, lock->name);
	if (fd < 0)
		return fd;
	ownfd_set(&lock->own, fd);
	error = promise_make(&lock->promise, fd, 0, bytes);
	if (error)
		pr_warn("%s: other jobs cannot see how much memory this job needs to resume: %s",
			lock->name, error_text(-error));
	return 0;
}

/* Without a descriptor or memory: it waits for that. */
static int lack_to_lock(struct gpu_lack *lack, int error)
{
	if (!is_shortage(error))
		return error;
	*lack = (struct gpu_lack){.dev = -1, .error = error};
	return -EAGAIN;
}

int release_lock(const size_t *carried, struct gpu_lack *lack)
{
	char path[PATH_MAX];
	int count = list_locks(carried), dir, error = 0;
	const char *why;

	nlocks = 0;
	/*
	 * If the directory cannot be used, an error was logged when the process began to listen
	 * there.
	 */
	if (!count || rundir_path(geteuid(), path, sizeof(path), &why))
		return 0;
	dir = rundir_create(path, geteuid(), &why);
	if (dir < 0)
		return lack_to_lock(lack, dir) == -EAGAIN ? -EAGAIN : 0;
	for (int i = 0; i < count && error != -EAGAIN; i++) {
		struct gpu_lock lock = locks[i];

		error = lack_to_lock(lack,
				     lock_gpu(dir, &lock, held[lock.dev] + carried[lock.dev]));
		if (!error)
			locks[nlocks++] = lock;
		else if (error != -EAGAIN)
			pr_warn("%s/%s is not locked: %s", path, lock.name, error_text(-error));
	}
	close(dir);
	if (error == -EAGAIN) {
		release_unlock();
		return -EAGAIN;
	}
	kept_out_since = 0;
	return nlocks;
}

void release_unlock(void)
{
	while (nlocks > 0) {
		int fd = ownfd_get(&locks[--nlocks].own);

		if (fd >= 0)
			rundir_unlock(fd);
	}
}

/* Add to @bytes, by device, the promises of other jobs that resume now. True if there are any. */
static bool add_promised(size_t *bytes)
{
	uint64_t promised, all;
	bool any = false;

	for (int i = 0; i < nlocks; i++)
		if (!promise_others(locks[i].promise.fd, 0, &promised, &all)) {
			bytes[locks[i].dev] += promised;
			any |= promised > 0;
		}
	return any;
}

bool release_fits(const size_t *carried, struct gpu_lack *lack)
{
	size_t needed[GPU_MAX], bytes[GPU_MAX], ngpus;
	const struct gpu *gpus = devices_all(&ngpus);
	bool beside_others;
	int error;

	if (process_locked || !ngpus)
		return true;
	for (size_t dev = 0; dev < ngpus; dev++)
		needed[dev] = held[dev] + carried[dev];
	/* Before the question for free memory: a promise ends when all of it has been taken. */
	beside_others = add_promised(needed);
	error = freemem_query(gpus, (int)ngpus, bytes);
	if (error && error != -ENOSYS)
		pr_warn("cannot ask for the free GPU memory now: %s", error_text(-error));
	if (error) {
		*lack = (struct gpu_lack){.dev = -1, .error = error == -ENOSYS ? 0 : error};
		return error == -ENOSYS && !beside_others;
	}
	for (size_t dev = 0; dev < ngpus; dev++)
		if (bytes[dev] < needed[dev]) {
			*lack = (struct gpu_lack){
				.dev = (int)dev, .needed = needed[dev], .free = bytes[dev]};
			return false;
		}
	return true;
}

void release_remap(const CUcheckpointGpuPair *pairs, size_t count)
{
	nremap = count < GPU_MAX ? count : GPU_MAX;
	memcpy(remap, pairs, nremap * sizeof(*pairs));
	devices_move(remap, nremap);
}

CUresult release_restore(const struct cuda_driver *drv, const char **call)
{
	CUcheckpointRestoreArgs restore = {.gpuPairs = nremap ? remap : NULL,
					   .gpuPairsCount = nremap};
	CUresult error;

	if (!process_locked) {
		*call = "cuCheckpointProcessRestore";
		error = drv->cuCheckpointProcessRestore(getpid(), &restore);
		if (error)
			return error;
		nremap = 0;
		set_locked(true);
	}
	return release_unlock_process(drv, call);
}
