/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "vmem/objects/objects_internal.h"

#include "vmem/freed.h"
#include "vmem/trimming.h"

static CUresult alloc_large(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr)
{
	size_t rounded = vmem_room_for(size);
	struct region *r;
	CUresult rc;

	if (!rounded)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = region_get(ctx, dev, rounded, &r);
	if (rc != CUDA_SUCCESS)
		return rc;
	REGION_WRITE(r, id, vmem_new_id());
	REGION_WRITE(r, asked, size);
	*ptr = r->start;
	return CUDA_SUCCESS;
}

CUresult vmem_alloc(CUcontext ctx, CUdevice dev, size_t size, CUdeviceptr *ptr,
		    unsigned long long *id)
{
	struct vmem_info info;
	struct device *d;
	CUresult rc;

	if (dev < 0 || dev >= GPU_MAX || !size)
		return CUDA_ERROR_INVALID_VALUE;
	d = &vm.devices[dev];
	pthread_mutex_lock(&d->lock);
	rc = device_probe(dev);
	if (rc == CUDA_SUCCESS && !d->caps.vmm)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (rc == CUDA_SUCCESS)
		rc = size < VMEM_GRANULE ? heap_alloc(ctx, dev, size, ptr)
					 : alloc_large(ctx, dev, size, ptr);
	if (rc == CUDA_SUCCESS) {
		d->stats.carried += size;
		d->stats.nalloc++;
	}
	if (rc == CUDA_SUCCESS && id && vmem_lookup(*ptr, &info))
		*id = info.id;
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static CUresult free_large(struct region *r, CUdeviceptr ptr)
{
	size_t asked = r->asked;

	if (ptr != r->start || !asked)
		return CUDA_ERROR_INVALID_VALUE;
	if (r->size > VMEM_CACHE) {
		CUresult rc = regions_unmap(r->start, r->size);

		if (rc != CUDA_SUCCESS)
			return rc;
	}
	REGION_WRITE(r, asked, 0);
	device_forget(r->dev, 1, asked);
	region_put(r);
	return CUDA_SUCCESS;
}

/* With the lock of the device held. */
static CUresult free_at(CUdeviceptr ptr)
{
	struct region *r = space_find(&vm.space, ptr);
	CUresult rc = r->slab ? heap_free(r, ptr) : free_large(r, ptr);

	if (rc == CUDA_SUCCESS)
		vmem_note_given_back();
	return rc;
}

static void remember_freed(const struct vmem_info *info)
{
	pthread_mutex_lock(&vm.lock);
	freed_add(vm.freed, info);
	pthread_mutex_unlock(&vm.lock);
}

CUresult vmem_free(CUdeviceptr ptr, unsigned long long id)
{
	struct device *d = device_lock_at(ptr);
	struct vmem_info info;
	CUresult rc = CUDA_ERROR_INVALID_VALUE;

	if (!d)
		return rc;
	if (vmem_lookup(ptr, &info) && (!id || info.id == id))
		rc = free_at(ptr);
	if (rc == CUDA_SUCCESS && vm.freed)
		remember_freed(&info);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

bool vmem_lookup(CUdeviceptr ptr, struct vmem_info *info)
{
	const struct region *r = space_find(&vm.space, ptr);
	const struct slab *slab;
	struct suballoc_info sub;
	CUdeviceptr start;

	if (!r)
		return false;
	start = REGION_READ(r, start);
	slab = REGION_READ(r, slab);
	if (slab) {
		if (!slab_lookup(slab, ptr - start, &sub))
			return false;
	} else {
		sub = (struct suballoc_info){.size = REGION_READ(r, asked)};
		sub.id = REGION_READ(r, id);
		if (ptr - start >= sub.size)
			return false;
	}
	*info = (struct vmem_info){
		.start = start + sub.offset,
		.size = sub.size,
		.ctx = REGION_READ(r, ctx),
		.dev = REGION_READ(r, dev),
		.id = sub.id,
	};
	return true;
}

/* With the lock of the device held: of the allocation of @size bytes that starts at @ptr. */
static void keep_at(CUdeviceptr ptr, size_t size)
{
	struct region *r = space_find(&vm.space, ptr);

	if (r->slab)
		suballoc_keep(r->slab, ptr);
	else
		REGION_WRITE(r, asked, 0);
	device_forget(r->dev, 1, size);
}

CUresult vmem_keep(CUdeviceptr ptr, unsigned long long id)
{
	struct device *d = device_lock_at(ptr);
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct vmem_info info;

	if (!d)
		return rc;
	if (vmem_lookup(ptr, &info) && info.start == ptr && (!id || info.id == id)) {
		keep_at(ptr, info.size);
		if (vm.freed)
			remember_freed(&info);
		rc = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

size_t vmem_room(CUdeviceptr ptr)
{
	struct device *d = device_lock_at(ptr);
	const struct region *r;
	size_t room = 0;

	if (!d)
		return 0;
	r = space_find(&vm.space, ptr);
	if (r->slab)
		room = suballoc_room(&r->heap->sa, r->slab, ptr);
	else if (!r->idle && r->start == ptr)
		room = r->size;
	pthread_mutex_unlock(&d->lock);
	return room;
}

size_t vmem_room_for(size_t size)
{
	bool small = size < VMEM_GRANULE;
	size_t unit = small ? SUBALLOC_UNIT : VMEM_GRANULE, gap = small && vm.gap;

	return size > SIZE_MAX - unit ? 0 : ((size + gap + unit - 1) & ~(unit - 1)) - gap;
}

/* With the lock of the device held. */
static CUresult reuse_at(CUdeviceptr ptr, size_t size)
{
	struct region *r = space_find(&vm.space, ptr);
	struct device *d = &vm.devices[r->dev];

	if (r->slab) {
		if (!suballoc_reuse(&r->heap->sa, r->slab, ptr, size, vmem_new_id()))
			return CUDA_ERROR_INVALID_VALUE;
	} else {
		if (r->idle || r->asked || r->start != ptr)
			return CUDA_ERROR_INVALID_VALUE;
		REGION_WRITE(r, id, vmem_new_id());
		REGION_WRITE(r, asked, size);
	}
	d->stats.carried += size;
	d->stats.nalloc++;
	return CUDA_SUCCESS;
}

CUresult vmem_reuse(CUdeviceptr ptr, size_t size)
{
	struct device *d = device_lock_at(ptr);
	CUresult rc;

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	rc = reuse_at(ptr, size);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

CUresult vmem_free_kept(CUdeviceptr ptr)
{
	struct device *d = device_lock_at(ptr);
	CUresult rc, unused;

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	/* An allocation of a byte, for the moment in which it is freed. */
	unused = reuse_at(ptr, 1);
	rc = unused == CUDA_SUCCESS ? free_at(ptr) : unused;
	if (unused == CUDA_SUCCESS && rc != CUDA_SUCCESS)
		keep_at(ptr, 1);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

void vmem_has_dmabuf(CUdeviceptr ptr, unsigned long long id)
{
	struct device *d = device_lock_at(ptr);
	struct vmem_info info;
	struct region *r;

	if (!d)
		return;
	r = space_find(&vm.space, ptr);
	r->outside |= vmem_lookup(ptr, &info) && info.id == id;
	pthread_mutex_unlock(&d->lock);
}

bool vmem_contains(CUdeviceptr ptr)
{
	return space_contains(&vm.space, ptr);
}

bool vmem_overlaps(CUdeviceptr ptr, size_t size)
{
	return vmem_contains(ptr) ||
	       (ptr < VMEM_BASE && size > VMEM_BASE - ptr && vmem_contains(VMEM_BASE));
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

static void release_on(CUdevice dev, CUcontext ctx)
{
	CUdeviceptr pos = VMEM_BASE;
	struct region *r;

	while ((r = region_next(dev, &pos))) {
		struct slab *slab = r->slab;

		if (r->ctx != ctx)
			continue;
		if (slab) {
			size_t bytes, live = slab_live(slab, &bytes);

			device_forget(dev, live, bytes);
			region_drop_slab(r);
		} else if (r->asked) {
			device_forget(dev, 1, r->asked);
			REGION_WRITE(r, asked, 0);
		}
		region_set_idle(r, true);
		region_context_gone(r);
		/* If this fails the region stays, and vmem_trim() tries again. */
		region_release(r);
	}
	heap_release_context(ctx, dev);
}

static void trim_on(CUdevice dev, CUcontext unused)
{
	(void)unused;
	mapping_tidy(vm.drv, &vm.devices[dev].caps);
	regions_trim(dev);
}

/* Call @change for each device that has been used. */
static void change_devices(void (*change)(CUdevice, CUcontext), CUcontext ctx)
{
	for (CUdevice dev = 0; dev < GPU_MAX; dev++) {
		struct device *d = &vm.devices[dev];

		pthread_mutex_lock(&d->lock);
		if (d->probed)
			change(dev, ctx);
		pthread_mutex_unlock(&d->lock);
	}
}

void vmem_release_context(CUcontext ctx)
{
	change_devices(release_on, ctx);
}

void vmem_trim(void)
{
	trimming_run();
	change_devices(trim_on, NULL);
}

void vmem_get_stats(struct vmem_stats *stats)
{
	*stats = (struct vmem_stats){0};
	for (CUdevice dev = 0; dev < GPU_MAX; dev++) {
		struct vmem_stats st;

		vmem_get_device_stats(dev, &st);
		stats->carried += st.carried;
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
	pthread_mutex_lock(&vm.devices[dev].lock);
	*stats = vm.devices[dev].stats;
	pthread_mutex_unlock(&vm.devices[dev].lock);
	objects_get_stats(dev, stats);
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
