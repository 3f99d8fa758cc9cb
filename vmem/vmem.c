/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/vmem.h"
#include "common/forks.h"
#include "vmem/context_gone.h"
#include "vmem/freed.h"
#include "vmem/mapping.h"
#include "vmem/space.h"
#include "vmem/suballoc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"
#include "common/gpu.h"

#define SLAB_MIN VMEM_GRANULE

/*
 * The members that vmem_lookup() reads are atomic. A region that is not in use has no slab and a
 * size of 0 asked for, so that a lookup through a stale table entry finds nothing in it.
 */
struct region {
	_Atomic CUdeviceptr start;
	_Atomic size_t
		asked; /* of a large region's allocation; 0 where it has none, or is a slab */
	_Atomic unsigned long long id;
	_Atomic CUcontext ctx;
	_Atomic CUdevice dev;
	struct slab *_Atomic slab; /* NULL in a large region */
	size_t size;
	struct heap *heap; /* of a slab */
	bool mapped;
	size_t left; /* of a region that is not mapped: bytes of a map that was not undone */
	bool idle;   /* no live allocation is in it */
	bool cached; /* it is in its device's cache */
	struct region *prev, *next;
};

/* The slabs of one context. */
struct heap {
	CUcontext ctx;
	CUdevice dev;
	size_t size; /* of all its slabs */
	/* The slab that became empty last; the one that is kept, unless it is in use again. */
	struct region *spare;
	struct suballoc sa;
	struct heap *next;
};

struct device {
	bool probed;
	struct mapping_caps caps;
	uint64_t peers; /* devices that may access the memory of this one, as bits */
	struct vmem_stats stats;
	struct region *cache; /* freed large regions, oldest first */
	size_t cache_size;
};

static struct {
	pthread_mutex_t lock; /* guards all below, except as vmem.h says */
	const struct cuda_driver *drv;
	struct space space;
	struct device devices[GPU_MAX];
	struct heap *heaps;
	struct region *regions; /* not in use */
	struct freed *freed;    /* NULL unless watched */
	size_t gap;             /* addresses left free behind each region */
	unsigned long long last_id;
} vm = {.lock = PTHREAD_MUTEX_INITIALIZER};
FORKS_LOCK_IN(vm, lock);

static void set_mapped(struct region *r, bool mapped)
{
	struct vmem_stats *st = &vm.devices[r->dev].stats;
	size_t delta = mapped ? r->size : -r->size;

	if (r->mapped == mapped)
		return;
	r->mapped = mapped;
	st->mapped += delta;
	if (r->idle)
		st->cached += delta;
}

static void set_idle(struct region *r, bool idle)
{
	if (r->idle == idle)
		return;
	r->idle = idle;
	mapping_use_changes(r->start, r->size);
	if (r->mapped)
		vm.devices[r->dev].stats.cached += idle ? r->size : -r->size;
}

static struct region *region_get(void)
{
	const size_t batch = 64;
	struct region *r = vm.regions;

	if (!r) {
		r = calloc(batch, sizeof(*r));
		for (size_t i = 0; r && i < batch; i++)
			LL_PREPEND(vm.regions, &r[i]);
		r = vm.regions;
	}
	if (r)
		LL_DELETE(vm.regions, r);
	return r;
}

static void cache_add(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	DL_APPEND(d->cache, r);
	d->cache_size += r->size;
	r->cached = true;
}

static void cache_remove(struct region *r)
{
	struct device *d = &vm.devices[r->dev];

	DL_DELETE(d->cache, r);
	d->cache_size -= r->size;
	r->cached = false;
}

/* Learn once what @dev can do. */
static CUresult probe(CUdevice dev)
{
	struct device *d = &vm.devices[dev];
	CUresult rc;

	if (d->probed)
		return CUDA_SUCCESS;
	rc = mapping_probe(vm.drv, dev, &d->caps);
	d->probed = rc == CUDA_SUCCESS;
	return rc;
}

/* Undo what a failed map() left. */
static CUresult unmap_left(struct region *r)
{
	CUresult rc = CUDA_SUCCESS;

	if (r->left)
		rc = mapping_unmap(vm.drv, r->start, r->left);
	if (rc == CUDA_SUCCESS)
		r->left = 0;
	return rc;
}

static CUresult map(struct region *r)
{
	const struct device *d = &vm.devices[r->dev];
	CUresult rc = unmap_left(r);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = mapping_map(vm.drv, r->dev, &d->caps, d->peers | 1UL << r->dev, r->start, r->size,
			 &r->left);
	if (rc == CUDA_SUCCESS)
		set_mapped(r, true);
	return rc;
}

static CUresult unmap(struct region *r)
{
	CUresult rc;

	if (!r->mapped)
		return unmap_left(r);
	rc = mapping_unmap(vm.drv, r->start, r->size);
	if (rc == CUDA_SUCCESS)
		set_mapped(r, false);
	return rc;
}

/* Unmap @r, which must have no live allocation, and forget it. On failure nothing changes. */
static CUresult region_release(struct region *r)
{
	CUresult rc = unmap(r);

	if (rc != CUDA_SUCCESS) {
		pr_debug("cannot unmap %zu bytes at %#llx: driver error %d", r->size,
			 (unsigned long long)r->start, rc);
		return rc;
	}
	if (r->cached)
		cache_remove(r);
	if (r->slab) {
		struct slab *slab = r->slab;

		r->slab = NULL;
		r->heap->size -= r->size;
		if (r->heap->spare == r)
			r->heap->spare = NULL;
		suballoc_remove(&r->heap->sa, slab);
	}
	space_free(&vm.space, r->start, r->size + vm.gap);
	LL_PREPEND(vm.regions, r);
	return CUDA_SUCCESS;
}

static CUresult region_new(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	struct region *r = region_get();
	CUdeviceptr start;
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	if (!r)
		return rc;
	if (size > SPACE_SIZE)
		goto err_put;
	rc = space_alloc(&vm.space, vm.drv, size + vm.gap, r, &start);
	if (rc != CUDA_SUCCESS)
		goto err_put;
	r->start = start;
	r->size = size;
	r->ctx = ctx;
	r->dev = dev;
	r->idle = false;
	r->left = 0;
	rc = map(r);
	if (r->left) {
		/* The addresses are taken until trim() has undone it. */
		set_idle(r, true);
		return rc;
	}
	if (rc != CUDA_SUCCESS)
		goto err_free;
	*region = r;
	return CUDA_SUCCESS;

err_free:
	space_free(&vm.space, start, size + vm.gap);
err_put:
	LL_PREPEND(vm.regions, r);
	return rc;
}

/* The region at or above *@pos, which moves behind it; it may then be released. */
static struct region *region_next(CUdeviceptr *pos)
{
	struct region *r = space_next(&vm.space, *pos);

	if (r)
		*pos = r->start + r->size + vm.gap;
	return r;
}

/* Release what is idle on @dev, or on all devices where that is negative; returns how much. */
static size_t trim(CUdevice dev)
{
	CUdeviceptr pos = VMEM_BASE;
	size_t released = 0;
	struct region *r;

	while ((r = region_next(&pos))) {
		size_t size = r->size;

		if (r->idle && (dev < 0 || r->dev == dev) && region_release(r) == CUDA_SUCCESS)
			released += size;
	}
	return released;
}

static CUresult region_new_or_trim(CUcontext ctx, CUdevice dev, size_t size, struct region **region)
{
	CUresult rc = region_new(ctx, dev, size, region);

	if (rc == CUDA_ERROR_OUT_OF_MEMORY && trim(dev))
		rc = region_new(ctx, dev, size, region);
	return rc;
}

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

/* Add a slab, of about an eighth of what the heap has, so that few allocations hold little. */
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
		set_idle(r, true);
		region_release(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r->heap = heap;
	heap->size += size;
	return CUDA_SUCCESS;
}

static CUresult alloc_small(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr)
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
	set_idle(space_find(&vm.space, addr), false);
	*ptr = addr;
	return CUDA_SUCCESS;
}

static struct region *cache_find(CUcontext ctx, CUdevice dev, size_t size)
{
	struct region *r;

	DL_FOREACH(vm.devices[dev].cache, r)
	if (r->size == size && r->ctx == ctx)
		return r;
	return NULL;
}

static CUresult alloc_large(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr)
{
	size_t rounded = (size + VMEM_GRANULE - 1) & ~(VMEM_GRANULE - 1);
	struct region *r;

	if (rounded < size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = cache_find(ctx, dev, rounded);
	if (r) {
		cache_remove(r);
		set_idle(r, false);
	} else {
		CUresult rc = region_new_or_trim(ctx, dev, rounded, &r);

		if (rc != CUDA_SUCCESS)
			return rc;
	}
	r->id = vm.last_id + 1;
	r->asked = size;
	*ptr = r->start;
	return CUDA_SUCCESS;
}

CUresult vmem_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr)
{
	CUresult rc;

	if (dev < 0 || dev >= GPU_MAX || !size)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&vm.lock);
	rc = probe(dev);
	if (rc == CUDA_SUCCESS && !vm.devices[dev].caps.vmm)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (rc == CUDA_SUCCESS)
		rc = size < VMEM_GRANULE ? alloc_small(ctx, dev, size, ptr)
					 : alloc_large(ctx, dev, size, ptr);
	if (rc == CUDA_SUCCESS) {
		vm.last_id++;
		vm.devices[dev].stats.managed += size;
		vm.devices[dev].stats.nalloc++;
	}
	pthread_mutex_unlock(&vm.lock);
	return rc;
}

/* Account for @n allocations of @size bytes in all that are no more. */
static void forget(CUdevice dev, size_t n, size_t size)
{
	vm.devices[dev].stats.nalloc -= n;
	vm.devices[dev].stats.managed -= size;
}

static CUresult free_small(struct region *r, CUdeviceptr ptr)
{
	struct heap *heap = r->heap;
	size_t size = suballoc_free(&heap->sa, r->slab, ptr);

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	forget(r->dev, 1, size);
	if (slab_live(r->slab, NULL))
		return CUDA_SUCCESS;
	set_idle(r, true);
	/*
	 * One empty slab stays, for a program that allocates and frees one block again and again.
	 */
	if (heap->spare && heap->spare != r && heap->spare->idle)
		region_release(r);
	else
		heap->spare = r;
	return CUDA_SUCCESS;
}

static CUresult free_large(struct region *r, CUdeviceptr ptr)
{
	struct device *d = &vm.devices[r->dev];
	size_t asked = r->asked;

	if (ptr != r->start || !asked)
		return CUDA_ERROR_INVALID_VALUE;
	if (r->size > VMEM_CACHE) {
		CUresult rc = unmap(r);

		if (rc != CUDA_SUCCESS)
			return rc;
	}
	r->asked = 0;
	forget(r->dev, 1, asked);
	set_idle(r, true);
	if (!r->mapped)
		return region_release(r);
	cache_add(r);
	while (d->cache_size > VMEM_CACHE)
		if (region_release(d->cache) != CUDA_SUCCESS)
			break;
	return CUDA_SUCCESS;
}

CUresult vmem_free(CUdeviceptr ptr)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct vmem_info info;
	struct region *r;
	bool known;

	pthread_mutex_lock(&vm.lock);
	r = space_find(&vm.space, ptr);
	known = vm.freed && vmem_lookup(ptr, &info);
	if (r)
		rc = r->slab ? free_small(r, ptr) : free_large(r, ptr);
	if (rc == CUDA_SUCCESS && known)
		freed_add(vm.freed, &info);
	pthread_mutex_unlock(&vm.lock);
	return rc;
}

bool vmem_contains(CUdeviceptr ptr)
{
	return space_contains(&vm.space, ptr);
}

bool vmem_lookup(CUdeviceptr ptr, struct vmem_info *info)
{
	const struct region *r = space_find(&vm.space, ptr);
	const struct slab *slab;
	struct suballoc_info sub;
	CUdeviceptr start;

	if (!r)
		return false;
	start = r->start;
	slab = r->slab;
	if (slab) {
		if (!slab_lookup(slab, ptr - start, &sub))
			return false;
	} else {
		sub = (struct suballoc_info){.size = r->asked, .id = r->id};
		if (ptr - start >= sub.size)
			return false;
	}
	*info = (struct vmem_info){
		.start = start + sub.offset,
		.size = sub.size,
		.ctx = r->ctx,
		.dev = r->dev,
		.id = sub.id,
	};
	return true;
}

void vmem_watch(void)
{
	pthread_mutex_lock(&vm.lock);
	vm.gap = 2 * VMEM_GRANULE;
	vm.space.scattered = true;
	if (!vm.freed)
		vm.freed = freed_new();
	pthread_mutex_unlock(&vm.lock);
}

bool vmem_lookup_freed(CUdeviceptr ptr, struct vmem_info *info)
{
	bool found;

	pthread_mutex_lock(&vm.lock);
	found = vm.freed && freed_find(vm.freed, ptr, info);
	pthread_mutex_unlock(&vm.lock);
	return found;
}

void vmem_release_context(CUcontext ctx)
{
	CUdeviceptr pos = VMEM_BASE;
	struct heap *heap, *next;
	struct region *r;

	pthread_mutex_lock(&vm.lock);
	while ((r = region_next(&pos))) {
		struct slab *slab = r->slab;

		if (r->ctx != ctx)
			continue;
		if (slab) {
			size_t bytes, live = slab_live(slab, &bytes);

			forget(r->dev, live, bytes);
			r->slab = NULL;
			suballoc_remove(&r->heap->sa, slab);
		} else if (r->asked) {
			forget(r->dev, 1, r->asked);
			r->asked = 0;
		}
		set_idle(r, true);
		if (r->mapped && mapping_is_gone(r->start, r->size))
			set_mapped(r, false);
		/* Where this fails the region stays as it is, for vmem_trim() to try again. */
		region_release(r);
	}
	LL_FOREACH_SAFE(vm.heaps, heap, next)
	{
		if (heap->ctx != ctx)
			continue;
		LL_DELETE(vm.heaps, heap);
		free(heap);
	}
	pthread_mutex_unlock(&vm.lock);
}

CONTEXT_GONE(vmem_release_context);

/* Change @peer's access to all that @dev has mapped below @end; *@failed is where it failed. */
static CUresult set_peer(CUdevice dev, CUdevice peer, bool on, CUdeviceptr end, CUdeviceptr *failed)
{
	CUdeviceptr pos = VMEM_BASE;
	struct region *r;

	while ((r = region_next(&pos)) && r->start < end) {
		CUresult rc;

		if (r->dev != dev || !r->mapped)
			continue;
		rc = mapping_set_user(vm.drv, peer, on, r->start, r->size);
		if (rc != CUDA_SUCCESS) {
			*failed = r->start;
			return rc;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult change_peer(CUdevice dev, CUdevice peer, bool on)
{
	CUresult rc = CUDA_SUCCESS;
	CUdeviceptr failed;
	struct device *d;

	if (dev < 0 || dev >= GPU_MAX || peer < 0 || peer >= GPU_MAX || dev == peer)
		return CUDA_ERROR_INVALID_VALUE;
	d = &vm.devices[dev];
	pthread_mutex_lock(&vm.lock);
	if ((d->peers >> peer & 1) != on) {
		rc = set_peer(dev, peer, on, VMEM_BASE + SPACE_SIZE, &failed);
		if (rc == CUDA_SUCCESS)
			d->peers ^= 1UL << peer;
		else
			set_peer(dev, peer, !on, failed, &failed);
	}
	pthread_mutex_unlock(&vm.lock);
	return rc;
}

CUresult vmem_peer_enable(CUdevice dev, CUdevice peer)
{
	return change_peer(dev, peer, true);
}

CUresult vmem_peer_disable(CUdevice dev, CUdevice peer)
{
	return change_peer(dev, peer, false);
}

void vmem_trim(void)
{
	pthread_mutex_lock(&vm.lock);
	mapping_tidy(vm.drv);
	trim(-1);
	pthread_mutex_unlock(&vm.lock);
}

void vmem_get_stats(struct vmem_stats *stats)
{
	*stats = (struct vmem_stats){0};
	for (CUdevice dev = 0; dev < GPU_MAX; dev++) {
		struct vmem_stats st;

		vmem_get_device_stats(dev, &st);
		stats->managed += st.managed;
		stats->mapped += st.mapped;
		stats->cached += st.cached;
		stats->nalloc += st.nalloc;
	}
}

void vmem_get_device_stats(CUdevice dev, struct vmem_stats *stats)
{
	*stats = (struct vmem_stats){0};
	if (dev < 0 || dev >= GPU_MAX)
		return;
	pthread_mutex_lock(&vm.lock);
	*stats = vm.devices[dev].stats;
	pthread_mutex_unlock(&vm.lock);
}

size_t vmem_regions(struct vmem_region *regions, size_t max)
{
	CUdeviceptr pos = VMEM_BASE;
	const struct region *r;
	size_t n = 0;

	pthread_mutex_lock(&vm.lock);
	while ((r = region_next(&pos))) {
		if (r->idle && r->left)
			continue;
		if (n < max)
			regions[n] = (struct vmem_region){
				.start = r->start,
				.size = r->size,
				.ctx = r->ctx,
				.dev = r->dev,
				.mapped = r->mapped,
			};
		n++;
	}
	pthread_mutex_unlock(&vm.lock);
	return n;
}

bool vmem_has_left(void)
{
	CUdeviceptr pos = VMEM_BASE;
	const struct region *r;
	bool found = false;

	pthread_mutex_lock(&vm.lock);
	while (!found && (r = region_next(&pos)))
		found = r->left && !r->idle;
	pthread_mutex_unlock(&vm.lock);
	return found;
}

bool vmem_granule_live(CUdeviceptr granule)
{
	const struct region *r = space_find(&vm.space, granule);
	const struct slab *slab = r ? r->slab : NULL;

	if (!slab)
		return r && r->asked;
	return slab_overlaps(slab, granule - r->start, VMEM_GRANULE);
}

static CUresult region_change(CUdeviceptr start, bool mapped)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct region *r;

	pthread_mutex_lock(&vm.lock);
	r = space_find(&vm.space, start);
	if (r && r->start == start) {
		if (!mapped)
			rc = unmap(r);
		else
			rc = r->mapped ? CUDA_SUCCESS : map(r);
	}
	pthread_mutex_unlock(&vm.lock);
	return rc;
}

CUresult vmem_region_unmap(CUdeviceptr start)
{
	return region_change(start, false);
}

CUresult vmem_region_map(CUdeviceptr start)
{
	return region_change(start, true);
}

int vmem_init(const struct cuda_driver *drv)
{
	int rc = 0;

	pthread_mutex_lock(&vm.lock);
	if (!vm.drv) {
		rc = space_init(&vm.space);
		if (!rc)
			vm.drv = drv;
	}
	pthread_mutex_unlock(&vm.lock);
	return rc;
}
