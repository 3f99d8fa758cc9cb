/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/sharing/sync_memops.h"
#include "checkpoint/ledger/captures.h"
#include "common/system/forks.h"
#include "wrapper/hooks/sharing/ipc.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stdlib.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct marked {
	unsigned long long id; /* of the allocation */
	CUdeviceptr start;
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static struct marked *table;      /* under lock */
static unsigned int tidy_at = 64; /* entries; under lock */
bool sync_memops_used;

static bool lookup(CUdeviceptr ptr, struct vmem_info *info)
{
	return vmem_contains(ptr) ? vmem_lookup(ptr, info) : ipc_lookup(ptr, info);
}

static struct marked *find_locked(unsigned long long id)
{
	struct marked *m;

	HASH_FIND(hh, table, &id, sizeof(id), m);
	return m;
}

static void remove_locked(struct marked *m)
{
	HASH_DELETE(hh, table, m);
	free(m);
}

/* Forget allocations that were freed, now and then, as nobody tells us. */
static void tidy_locked(void)
{
	struct marked *m, *next;
	struct vmem_info info;

	if (HASH_COUNT(table) < tidy_at)
		return;
	HASH_ITER(hh, table, m, next)
		if (!lookup(m->start, &info) || info.id != m->id)
			remove_locked(m);
	tidy_at = 2 * HASH_COUNT(table) + 64;
}

static bool add_locked(const struct vmem_info *info)
{
	struct marked *m = malloc(sizeof(*m));

	if (!m)
		return false;
	*m = (struct marked){.id = info->id, .start = info->start};
	HASH_ADD(hh, table, id, sizeof(m->id), m);
	if (!m->hh.tbl) {
		free(m);
		return false;
	}
	__atomic_store_n(&sync_memops_used, true, __ATOMIC_RELAXED);
	return true;
}

bool sync_memops_set(const struct vmem_info *info, bool on)
{
	struct marked *m;
	bool done = true;

	pthread_mutex_lock(&lock);
	m = find_locked(info->id);
	if (m && !on) {
		remove_locked(m);
	} else if (!m && on) {
		tidy_locked();
		done = add_locked(info);
	}
	pthread_mutex_unlock(&lock);
	return done;
}

bool sync_memops_find(CUdeviceptr ptr)
{
	struct vmem_info info;
	bool found;

	if (!lookup(ptr, &info))
		return false;
	pthread_mutex_lock(&lock);
	found = find_locked(info.id);
	pthread_mutex_unlock(&lock);
	return found;
}

/* @ptr is one side of a copy, if the side is of @type. */
static bool of_side(CUmemorytype type, CUdeviceptr ptr)
{
	return (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) &&
	       sync_memops_of(ptr);
}

bool sync_memops_of_2d(const CUDA_MEMCPY2D_v2 *copy)
{
	return copy && (of_side(copy->srcMemoryType, copy->srcDevice) ||
			of_side(copy->dstMemoryType, copy->dstDevice));
}

bool sync_memops_of_3d(const CUDA_MEMCPY3D_v2 *copy)
{
	return copy && (of_side(copy->srcMemoryType, copy->srcDevice) ||
			of_side(copy->dstMemoryType, copy->dstDevice));
}

bool sync_memops_of_3d_peer(const CUDA_MEMCPY3D_PEER *copy)
{
	return copy && (of_side(copy->srcMemoryType, copy->srcDevice) ||
			of_side(copy->dstMemoryType, copy->dstDevice));
}

/* In a thread in relaxed mode, as a wait would break captures otherwise. */
static CUresult wait_beside_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult result = real.cuThreadExchangeStreamCaptureMode(&mode);

	if (result)
		return result;
	/* A call that was captured has nothing to wait for. */
	if (!real.cuStreamIsCapturing(stream, &status) && status == CU_STREAM_CAPTURE_STATUS_NONE)
		result = real.cuStreamSynchronize(stream);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	return result;
}

CUresult sync_memops_wait(CUstream stream)
{
	if (captures_open(driver_table()))
		return wait_beside_captures(stream);
	return real.cuStreamSynchronize(stream);
}
