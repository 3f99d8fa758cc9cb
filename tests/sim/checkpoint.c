/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's checkpoint (cuCheckpointProcess*), of the calling process or, by remote.c, of
 * another one.
 *
 * From Lock to Unlock every other entry point waits at its door (SIM_ENTER), and is counted. A
 * thread that waits there while the checkpoint is taken is what crashes real drivers: with
 * CUDAW_SIM_STRICT it ends the process. What is still allocated stays in the memfds, unreachable
 * and not counted as used: that is this driver's host memory.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CUresult check_state(CUprocessState state)
{
	return sim.state == state ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static bool quiet(void)
{
	return !sim.inside && !streams_pending();
}

static CUresult run_lock(unsigned int timeout_ms)
{
	uint64_t deadline = timeout_ms ? sim_now() + timeout_ms * 1000000ull : 0;
	CUresult result;

	registered_check();
	sim.lockers++;
	while (sim.state == CU_PROCESS_STATE_RUNNING && !quiet() &&
	       (!deadline || sim_now() < deadline))
		sim_wait(deadline);
	sim.lockers--;
	result = check_state(CU_PROCESS_STATE_RUNNING);
	if (result != CUDA_SUCCESS)
		return result;
	if (!quiet())
		return CUDA_ERROR_NOT_READY;
	sim.state = CU_PROCESS_STATE_LOCKED;
	return CUDA_SUCCESS;
}

/* A context in error has another error after the driver's checkpoint. */
static void lose_errors(void)
{
	for (struct sim_object *o = sim.objects[KIND_CTX]; o; o = o->next) {
		struct sim_ctx *ctx = (struct sim_ctx *)o;

		if (ctx->error)
			ctx->error = CUDA_ERROR_UNKNOWN;
	}
}

/* Bytes that the process uses on @dev while it is not checkpointed. */
static size_t used_on(CUdevice dev)
{
	size_t bytes = ctx_bytes(dev) + pools_kept(dev) + registered_tables(dev);

	for (struct sim_object *o = sim.objects[KIND_ALLOC]; o; o = o->next) {
		struct sim_alloc *alloc = (struct sim_alloc *)o;

		if (alloc->dev == dev && alloc->fd >= 0 && !alloc->imported && !alloc->small)
			bytes += alloc->size;
	}
	return bytes;
}

/* Host memory stays accessible. */
static void protect_all(bool accessible)
{
	for (struct sim_map *map = map_next(NULL); map; map = map_next(map))
		if (map->kind < MAP_MANAGED)
			map_protect(map, accessible);
}

/* The time that the copying would take. */
static void take_time(size_t bytes)
{
	uint64_t deadline = sim_now();

	if (sim.config.copy_bytes_per_ns <= 0)
		return;
	deadline += (uint64_t)((double)bytes / sim.config.copy_bytes_per_ns);
	while (sim_now() < deadline)
		sim_wait(deadline);
}

/* A process with managed memory is refused, with __managed__ variables by another error [H200, driver 580.159]. */
static CUresult refuse_managed(void)
{
	struct sim_map *map = map_next(NULL);

	while (map && map->kind != MAP_MANAGED)
		map = map_next(map);
	if (!map)
		return CUDA_SUCCESS;
	return map->flags ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_UNKNOWN;
}

/* The checkpoint of a process with an allocation from a pool of host memory does not end [H200, driver 580.159]. */
static void wait_for_host_pools(void)
{
	const struct sim_map *map = map_next(NULL);

	while (map && !(map->kind == MAP_HOST && map->pool))
		map = map_next(map);
	while (map)
		pause();
}

static CUresult run_checkpoint(void)
{
	size_t bytes = 0;
	char names[256];
	CUresult result = check_state(CU_PROCESS_STATE_LOCKED);

	if (result == CUDA_SUCCESS)
		result = refuse_managed();
	if (result != CUDA_SUCCESS)
		return result;
	if (sim.held && sim.config.strict) {
		sim_held_names(names, sizeof(names));
		fprintf(stderr, "sim: process checkpoint with calls in the driver:%s\n", names);
		abort();
	}
	wait_for_host_pools();
	protect_all(false);
	lose_errors();
	for (CUdevice dev = 0; dev < sim.config.devices; dev++) {
		bytes += used_on(dev);
		account_release(dev, used_on(dev));
	}
	sim.state = CU_PROCESS_STATE_CHECKPOINTED;
	take_time(bytes);
	return CUDA_SUCCESS;
}

/* All devices, or none. */
static bool charge_all(void)
{
	for (CUdevice dev = 0; dev < sim.config.devices; dev++) {
		if (account_charge(dev, used_on(dev)))
			continue;
		while (dev-- > 0)
			account_release(dev, used_on(dev));
		return false;
	}
	return true;
}

/* The GPU that has it; -1: none. */
static int find_gpu(const CUuuid *uuid)
{
	CUuuid other;

	for (int gpu = 0; gpu < sim.config.gpus; gpu++) {
		device_uuid(&other, gpu);
		if (!memcmp(uuid, &other, sizeof(other)))
			return gpu;
	}
	return -1;
}

/*
 * Put each device on the GPU that the pairs say: all GPUs of the machine have to be in them, also those that the process
 * does not see [H200, driver 580.159], and no two on one GPU.
 */
static CUresult move_devices(const CUcheckpointRestoreArgs *args)
{
	bool taken[SIM_MAX_DEVICES] = {false};
	int to[SIM_MAX_DEVICES] = {0};

	for (int gpu = 0; gpu < sim.config.gpus; gpu++) {
		const CUcheckpointGpuPair *pair = NULL;

		for (unsigned int i = 0; i < args->gpuPairsCount && !pair; i++)
			if (find_gpu(&args->gpuPairs[i].oldUuid) == gpu)
				pair = &args->gpuPairs[i];
		if (!pair)
			return CUDA_ERROR_INVALID_VALUE;
		to[gpu] = find_gpu(&pair->newUuid);
		if (to[gpu] < 0)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (taken[to[gpu]])
			return CUDA_ERROR_INVALID_VALUE;
		taken[to[gpu]] = true;
	}
	for (CUdevice dev = 0; dev < sim.config.devices; dev++)
		sim.gpu[dev] = to[sim.gpu[dev]];
	return CUDA_SUCCESS;
}

/*
 * A process that was checkpointed with an import, mapped or not, is never restored, and neither is one with
 * memory of which it gave a legacy handle away, or with host memory of cuMemCreate() [H200, driver 580.159].
 */
static CUresult check_restorable(void)
{
	for (struct sim_object *o = sim.objects[KIND_ALLOC]; o; o = o->next) {
		struct sim_alloc *alloc = (struct sim_alloc *)o;

		if (alloc->imported || alloc->tainted)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (alloc->dev == SIM_HOST)
			return CUDA_ERROR_UNKNOWN;
	}
	return CUDA_SUCCESS;
}

static CUresult run_restore(const CUcheckpointRestoreArgs *args)
{
	int before[SIM_MAX_DEVICES];
	size_t bytes = 0;
	CUresult result = check_state(CU_PROCESS_STATE_CHECKPOINTED);

	if (result == CUDA_SUCCESS)
		result = check_restorable();
	if (result != CUDA_SUCCESS)
		return result;
	memcpy(before, sim.gpu, sizeof(before));
	if (args && args->gpuPairsCount)
		result = move_devices(args);
	if (result == CUDA_SUCCESS && !charge_all()) {
		memcpy(sim.gpu, before, sizeof(before));
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS)
		return result;
	for (CUdevice dev = 0; dev < sim.config.devices; dev++)
		bytes += used_on(dev);
	take_time(bytes);
	protect_all(true);
	sim.state = CU_PROCESS_STATE_LOCKED;
	return CUDA_SUCCESS;
}

static CUresult run_unlock(void)
{
	CUresult result = check_state(CU_PROCESS_STATE_LOCKED);

	if (result != CUDA_SUCCESS)
		return result;
	sim.state = CU_PROCESS_STATE_RUNNING;
	sim_changed();
	return CUDA_SUCCESS;
}

CUresult checkpoint_run(struct checkpoint_call *call, const CUcheckpointRestoreArgs *args)
{
	switch (call->op) {
	case CHECKPOINT_LOCK:
		return run_lock(call->timeout_ms);
	case CHECKPOINT_TAKE:
		return run_checkpoint();
	case CHECKPOINT_RESTORE:
		return run_restore(args);
	case CHECKPOINT_UNLOCK:
		return run_unlock();
	case CHECKPOINT_STATE:
		call->value = (int)sim.state;
		return CUDA_SUCCESS;
	case CHECKPOINT_THREAD:
		call->value = getpid(); /* any thread of the process can restore it */
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Run it in the process @pid. */
static CUresult run_in(int pid, struct checkpoint_call *call, const CUcheckpointRestoreArgs *args)
{
	if (pid <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (pid == getpid())
		return checkpoint_run(call, args);
	if (!sim.config.remote)
		return CUDA_ERROR_NOT_SUPPORTED;
	call->pairs = args ? args->gpuPairsCount : 0;
	return remote_call(pid, call);
}

SIM_EXPORT cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	struct checkpoint_call call = {.op = CHECKPOINT_LOCK,
				       .timeout_ms = args ? args->timeoutMs : 0};

	SIM_ENTER(cuCheckpointProcessLock, NEED_CHECKPOINT);
	return run_in(pid, &call, NULL);
}

SIM_EXPORT cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	struct checkpoint_call call = {.op = CHECKPOINT_TAKE};

	SIM_ENTER(cuCheckpointProcessCheckpoint, NEED_CHECKPOINT);
	(void)args;
	return run_in(pid, &call, NULL);
}

SIM_EXPORT cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	struct checkpoint_call call = {.op = CHECKPOINT_RESTORE};

	SIM_ENTER(cuCheckpointProcessRestore, NEED_CHECKPOINT);
	return run_in(pid, &call, args);
}

SIM_EXPORT cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	struct checkpoint_call call = {.op = CHECKPOINT_UNLOCK};

	SIM_ENTER(cuCheckpointProcessUnlock, NEED_CHECKPOINT);
	(void)args;
	return run_in(pid, &call, NULL);
}

SIM_EXPORT cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	struct checkpoint_call call = {.op = CHECKPOINT_STATE};
	CUresult result;

	SIM_ENTER(cuCheckpointProcessGetState, NEED_CHECKPOINT);
	result = run_in(pid, &call, NULL);
	if (result == CUDA_SUCCESS)
		*state = (CUprocessState)call.value;
	return result;
}

SIM_EXPORT cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	struct checkpoint_call call = {.op = CHECKPOINT_THREAD};
	CUresult result;

	SIM_ENTER(cuCheckpointProcessGetRestoreThreadId, NEED_CHECKPOINT);
	result = run_in(pid, &call, NULL);
	if (result == CUDA_SUCCESS)
		*tid = call.value;
	return result;
}
