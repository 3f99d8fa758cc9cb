/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release.h"
#include "checkpoint/freemem.h"
#include "checkpoint/nvml.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "release: "
#include "vmem/log.h"

#define MAX_DEVICES     64
#define LOCK_TIMEOUT_MS 10000

/* What a context takes where NVML does not know this process [H200: 529 MiB]. */
#define CONTEXT_GUESS (1UL << 30)

/* What this process holds on each GPU when the checkpoint takes it; the engine's thread only. */
static CUuuid uuids[MAX_DEVICES];
static size_t held[MAX_DEVICES];
static int ngpus;
static bool restored; /* but not unlocked: that is what is left to be tried again */

bool release_wanted(const struct cuda_driver *drv)
{
	const char *what = getenv("CUDAW_RELEASE");

	if (what && !strcmp(what, "memory"))
		return false;
	if (what && *what && strcmp(what, "all"))
		pr_err("CUDAW_RELEASE=%s: expected all or memory; using all", what);
	return drv->cuCheckpointProcessLock && drv->cuCheckpointProcessCheckpoint &&
	       drv->cuCheckpointProcessRestore && drv->cuCheckpointProcessUnlock;
}

static void measure(const struct cuda_driver *drv, const struct context *list, size_t count)
{
	char name[NVML_UUID_SIZE];

	memset(held, 0, sizeof(held));
	ngpus = 0;
	if (!drv->cuDeviceGetUuid_v2)
		return;
	drv->cuDeviceGetCount(&ngpus);
	if (ngpus > MAX_DEVICES)
		ngpus = MAX_DEVICES;
	for (int dev = 0; dev < ngpus; dev++)
		drv->cuDeviceGetUuid_v2(&uuids[dev], dev);
	for (size_t i = 0; i < count; i++) {
		CUdevice dev = list[i].dev;

		if (dev >= ngpus || held[dev])
			continue;
		nvml_uuid_text(&uuids[dev], name);
		if (nvml_process_memory(name, &held[dev]))
			held[dev] = CONTEXT_GUESS;
	}
}

CUresult release_checkpoint(const struct cuda_driver *drv, const struct context *list, size_t count,
			    const char **call)
{
	CUcheckpointLockArgs lock = {.timeoutMs = LOCK_TIMEOUT_MS};
	CUcheckpointCheckpointArgs checkpoint = {0};
	CUcheckpointUnlockArgs unlock = {0};
	CUresult error;

	measure(drv, list, count);
	*call = "cuCheckpointProcessLock";
	error = drv->cuCheckpointProcessLock(getpid(), &lock);
	if (error)
		return error;
	*call = "cuCheckpointProcessCheckpoint";
	error = drv->cuCheckpointProcessCheckpoint(getpid(), &checkpoint);
	if (error) {
		drv->cuCheckpointProcessUnlock(getpid(), &unlock);
		return error;
	}
	return CUDA_SUCCESS;
}

bool release_fits(const size_t *managed)
{
	size_t bytes[MAX_DEVICES];

	if (restored || !ngpus || freemem_query(uuids, ngpus, bytes))
		return true;
	for (int dev = 0; dev < ngpus; dev++)
		if (bytes[dev] < held[dev] + managed[dev])
			return false;
	return true;
}

CUresult release_restore(const struct cuda_driver *drv, const char **call)
{
	CUcheckpointRestoreArgs restore = {0};
	CUcheckpointUnlockArgs unlock = {0};
	CUresult error;

	if (!restored) {
		*call = "cuCheckpointProcessRestore";
		error = drv->cuCheckpointProcessRestore(getpid(), &restore);
		if (error)
			return error;
	}
	*call = "cuCheckpointProcessUnlock";
	error = drv->cuCheckpointProcessUnlock(getpid(), &unlock);
	restored = error != CUDA_SUCCESS;
	return error;
}
