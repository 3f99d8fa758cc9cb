/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"

#include <stdlib.h>
#include <utlist.h>

#define SLAB_MIN VMEM_GRANULE

static struct heap *heap_get(CUcontext ctx, CUdevice dev)
{
	struct heap *heap;

	for (heap = vm.heaps; heap; heap = heap->next)
		if (heap->ctx == ctx && heap->dev == dev)
			return heap;
	heap = calloc(1, sizeof(*heap));
	if (!heap)
		return NULL;
	heap->ctx = ctx;
	heap->dev = dev;
	heap->sa.gap = vm.gap > 0;
	LL_PREPEND(vm.heaps, heap);
	return heap;
}

/* Add a slab of about an eighth of the heap, so that few allocations hold little memory. */
static CUresult heap_grow(struct heap *heap)
{
	size_t size = SLAB_MIN;
	struct region *r;
	CUresult rc;

	while (size < SLAB_MAX && size * 2 <= heap->size / 8)
		size *= 2;
	rc = region_new_or_trim(heap->ctx, heap->dev, size, &r);
	if (rc == CUDA_ERROR_OUT_OF_MEMORY && size > SLAB_MIN) {
		size = SLAB_MIN;
		rc = region_new(heap->ctx, heap->dev, size, &r);
	}
	if (rc != CUDA_SUCCESS)
		return rc;
	r->slab = suballoc_add(&heap->sa, r->start, size);
	if (!r->slab) {
		region_set_idle(r, true);
		region_release(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r->heap = heap;
	heap->size += size;
	return CUDA_SUCCESS;
}

CUresult heap_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr)
{
	struct heap *heap = heap_get(ctx, dev);
	uint64_t addr;

	if (!heap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!suballoc_alloc(&heap->sa, size, vm.last_id + 1, &addr)) {
		CUresult rc = heap_grow(heap);

		if (rc != CUDA_SUCCESS)
			return rc;
		suballoc_alloc(&heap->sa, size, vm.last_id + 1, &addr);
	}
	region_set_idle(space_find(&vm.space, addr), false);
	*ptr = addr;
	return CUDA_SUCCESS;
}

CUresult heap_free(struct region *r, CUdeviceptr ptr)
{
	struct heap *heap = r->heap;
	size_t size = suballoc_free(&heap->sa, r->slab, ptr);

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	device_forget(r->dev, 1, size);
	if (slab_live(r->slab, NULL))
		return CUDA_SUCCESS;
	region_set_idle(r, true);
	/* One empty slab stays for a program that allocates and frees one block repeatedly. */
	if (heap->spare && heap->spare != r && heap->spare->idle)
		region_release(r);
	else
		heap->spare = r;
	return CUDA_SUCCESS;
}

void heaps_release_context(CUcontext ctx)
{
	struct heap *heap, *next;

	LL_FOREACH_SAFE(vm.heaps, heap, next)
	{
		if (heap->ctx != ctx)
			continue;
		LL_DELETE(vm.heaps, heap);
		free(heap);
	}
}
