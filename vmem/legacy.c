/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/legacy.h"
#include "vmem/internal.h"

#include <string.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

bool vmem_can_share(CUdevice dev)
{
	bool can;

	pthread_mutex_lock(&vm.devices[dev].lock);
	can = vm.devices[dev].caps.exportable && vm.drv->cuMemExportToShareableHandle &&
	      vm.drv->cuMemRetainAllocationHandle;
	pthread_mutex_unlock(&vm.devices[dev].lock);
	return can;
}

void legacy_key_piece(unsigned char key[OBJECT_KEY], uint32_t piece)
{
	memcpy(key + SHARED_PIECE_AT, &piece, sizeof(piece));
}

static uint32_t piece_of(const unsigned char key[OBJECT_KEY])
{
	uint32_t piece;

	memcpy(&piece, key + SHARED_PIECE_AT, sizeof(piece));
	return piece;
}

/* All regions of the run get the key, as each of them may outlive the others' allocations. */
static void name_run(const struct region *of, const unsigned char fresh[OBJECT_KEY])
{
	CUdeviceptr end = of->run + of->run_size;
	struct region *r;

	for (CUdeviceptr at = of->run; at < end; at += r->size) {
		r = space_find(&vm.space, at);
		memcpy(r->key, fresh, sizeof(r->key));
		legacy_key_piece(r->key, 0);
		r->shared = true;
	}
}

CUresult vmem_share(CUdeviceptr ptr, const unsigned char fresh[OBJECT_KEY],
		    struct vmem_shared *shared)
{
	struct vmem_info info, now;
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct device *d;

	if (!vmem_lookup(ptr, &info) || !vmem_can_share(info.dev))
		return rc;
	d = &vm.devices[info.dev];
	pthread_mutex_lock(&d->lock);
	if (vmem_lookup(ptr, &now) && now.id == info.id) {
		struct region *r = space_find(&vm.space, ptr);

		if (!r->shared)
			name_run(r, fresh);
		memcpy(shared->key, r->key, sizeof(r->key));
		shared->size = r->run_size;
		shared->offset = info.start - r->run;
		rc = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static bool has_key(const struct region *r, const unsigned char key[OBJECT_KEY])
{
	return r->shared && !r->idle && !memcmp(r->key, key, SHARED_PIECE_AT) &&
	       piece_of(key) < (r->run_size + VMEM_PIECE - 1) / VMEM_PIECE;
}

/* The region that has a piece with that key, with its device locked; NULL: none has. */
static struct region *lock_region(const unsigned char key[OBJECT_KEY])
{
	CUdeviceptr pos = VMEM_BASE;
	struct region *r;

	while ((r = region_next_locked(&pos)) && !has_key(r, key))
		region_unlock(r);
	return r;
}

bool legacy_has(const unsigned char key[OBJECT_KEY])
{
	const struct region *r = lock_region(key);

	if (r)
		region_unlock(r);
	return r;
}

/* The memory that is mapped from @start on. */
static CUresult export_mapped(CUdeviceptr start, int *fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult rc = vm.drv->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)start);
	CUresult released;

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = vm.drv->cuMemExportToShareableHandle(fd, handle,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	released = vm.drv->cuMemRelease(handle);
	if (released != CUDA_SUCCESS)
		pr_warn("cannot release the handle of shared memory: driver error %d", released);
	return rc;
}

CUresult shared_export(const unsigned char key[OBJECT_KEY], int *fd, size_t *size)
{
	size_t at = (size_t)piece_of(key) * VMEM_PIECE;
	const struct region *r = lock_region(key);
	CUresult rc = CUDA_ERROR_NOT_READY;

	if (!r)
		return CUDA_ERROR_INVALID_VALUE;
	*size = r->run_size - at < VMEM_PIECE ? r->run_size - at : VMEM_PIECE;
	/* A run of several regions is mapped as a whole. */
	if (region_is_mapped(r) || r->mapped >= at + *size)
		rc = export_mapped(r->run + at, fd);
	region_unlock(r);
	return rc;
}

size_t legacy_held(void)
{
	CUdeviceptr pos = VMEM_BASE;
	struct region *r;
	size_t n = 0;

	while ((r = region_next_locked(&pos))) {
		n += r->shared && r->start == r->run && (r->mapped || r->left);
		region_unlock(r);
	}
	return n;
}
