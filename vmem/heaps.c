/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"

#include <stdlib.h>
#include <utlist.h>

_Static_assert(SLAB_MIN == VMEM_GRANULE, "a slab goes back by itself");

static struct heap *heap_get(CUcontext ctx, CUdevice dev)
{
	struct heap *heap;

	for (heap = vm.devices[dev].heaps; heap; heap = heap->next)
		if (heap->ctx == ctx)
			return heap;
	heap = calloc(1, sizeof(*heap));
	if (!heap)
		return NULL;
	heap->ctx = ctx;
	heap->dev = dev;
	heap->sa.gap = vm.gap > 0;
	LL_PREPEND(vm.devices[dev].heaps, heap);
	return heap;
}

/*
 * A slab is a granule, as the driver's own blocks are, so that few allocations that are left hold no
 * more memory than natively. If there is a gap behind each allocation, two of 1 MiB do not fit: then
 * a slab is about an eighth of the heap.
 */
static size_t slab_size(const struct heap *heap)
{
	size_t size = SLAB_MIN;

	while (heap->sa.gap && size < SLAB_MAX && size * 2 <= heap->size / 8)
		size *= 2;
	return size;
}

static CUresult heap_grow(struct heap *heap)
{
	size_t size = slab_size(heap);
	struct region *r;
	struct slab *slab;
	CUresult rc;

	rc = region_get(heap->ctx, heap->dev, size, &r);
	if (rc == CUDA_ERROR_OUT_OF_MEMORY && size > SLAB_MIN) {
		size = SLAB_MIN;
		rc = region_new(heap->ctx, heap->dev, size, &r);
	}
	if (rc != CUDA_SUCCESS)
		return rc;
	slab = suballoc_add(&heap->sa, r->start, size);
	if (!slab) {
		region_put(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	REGION_WRITE(r, slab, slab);
	r->heap = heap;
	heap->size += size;
	vm.devices[heap->dev].slabs += size;
	return CUDA_SUCCESS;
}

CUresult heap_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr)
{
	struct heap *heap = heap_get(ctx, dev);
	unsigned long long id = vmem_new_id();
	uint64_t addr;
	bool got;

	if (!heap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	got = suballoc_alloc(&heap->sa, size, id, &addr);
	if (!got) {
		CUresult rc = heap_grow(heap);

		if (rc == CUDA_SUCCESS)
			got = suballoc_alloc(&heap->sa, size, id, &addr);
		else if (rc == CUDA_ERROR_OUT_OF_MEMORY)
			got = suballoc_alloc_any(&heap->sa, size, id, &addr);
		if (!got)
			return rc;
	}
	region_use(space_find(&vm.space, addr));
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
	if (!slab_is_free(r->slab))
		return CUDA_SUCCESS;
	/* It stays a slab while it is kept, for a program that allocates and frees repeatedly. */
	region_put(r);
	return CUDA_SUCCESS;
}

void heap_release_context(CUcontext ctx, CUdevice dev)
{
	struct heap **heaps = &vm.devices[dev].heaps, *heap, *next;

	LL_FOREACH_SAFE(*heaps, heap, next) {
		if (heap->ctx != ctx)
			continue;
		LL_DELETE(*heaps, heap);
		free(heap);
	}
}
