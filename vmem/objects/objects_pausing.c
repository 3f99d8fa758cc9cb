/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "vmem/objects/objects_internal.h"

#include <stdlib.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

#define ACCESS_MAX 64 /* locations in one call */

/* Copies that run on @dev can read and write all of the object there. */
static bool shows_all(const struct mapping *m, CUdevice dev)
{
	bool all = false;

	if (!m->mapped || m->offset || m->size != m->object->size)
		return false;
	for (const struct access *a = m->access; a; a = a->next) {
		if (a->location.type != CU_MEM_LOCATION_TYPE_DEVICE || a->location.id != dev)
			continue;
		all = a->size == m->size && a->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	return all;
}

static CUresult map_part(const struct mapping *m)
{
	return vm.drv->cuMemMap(m->start, m->size, m->offset, m->object->driver_s, 0);
}

/* Allow what the program has allowed, in its order. Locations of one range go in one call. */
static CUresult allow(const struct mapping *m)
{
	CUmemAccessDesc desc[ACCESS_MAX];
	CUresult rc = CUDA_SUCCESS;

	for (const struct access *a = m->access, *next; a && rc == CUDA_SUCCESS; a = next) {
		size_t n = 0;

		for (next = a;
		     next && n < ACCESS_MAX && next->start == a->start && next->size == a->size;
		     next = next->next)
			desc[n++] = (CUmemAccessDesc){next->location, next->flags};
		rc = vm.drv->cuMemSetAccess(a->start, a->size, desc, n);
	}
	return rc;
}

/* On success the object is mapped at @m. */
static CUresult window_place(struct mapping *m)
{
	struct object *o = m->object;
	CUresult rc = object_hold(o);

	if (rc == CUDA_SUCCESS)
		rc = vm.drv->cuMemAddressReserve(&m->start, m->size, VMEM_GRANULE, 0, 0);
	if (rc != CUDA_SUCCESS) {
		object_unhold_again(o);
		return rc;
	}
	rc = map_part(m);
	if (rc != CUDA_SUCCESS) {
		vm.drv->cuMemAddressFree(m->start, m->size);
		object_unhold_again(o);
	}
	return rc;
}

/* If the driver does not unmap it, it stays until the next try, or the next pause. */
static void window_close(struct mapping *m)
{
	CUresult rc = vm.drv->cuMemUnmap(m->start, m->size);

	if (rc != CUDA_SUCCESS) {
		pr_warn("%zu bytes stay mapped at %#llx for now: driver error %d", m->size,
			m->start, rc);
		return;
	}
	vm.drv->cuMemAddressFree(m->start, m->size);
	object_unhold_again(m->object);
	mappings_remove(m);
}

static bool has_window(const struct object *o)
{
	const struct mapping *m = o->maps;

	while (m && !m->window)
		m = m->next;
	return m;
}

static void windows_close(struct object *o)
{
	for (struct mapping *m = o->maps, *next; m; m = next) {
		next = m->next;
		if (m->window)
			window_close(m);
	}
}

/* Map the object at addresses of our own, for copies on @dev, until vmem_objects_let_go(). */
static CUresult window_open(struct object *o, CUdevice dev)
{
	struct mapping *m = calloc(1, sizeof(*m));
	struct access *a = calloc(1, sizeof(*a));
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	if (m && a && mappings_reserve()) {
		*m = (struct mapping){.size = o->size, .object = o, .mapped = true, .window = true};
		rc = window_place(m);
	}
	if (rc != CUDA_SUCCESS) {
		free(m);
		free(a);
		return rc;
	}
	*a = (struct access){.start = m->start,
			     .size = m->size,
			     .location = {CU_MEM_LOCATION_TYPE_DEVICE, dev},
			     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	m->access = a;
	mappings_insert(m);
	o->home = m;
	return CUDA_SUCCESS;
}

static CUresult choose_home(struct object *o, CUdevice dev)
{
	CUresult rc = CUDA_SUCCESS;

	for (struct mapping *m = o->maps; m && !o->home; m = m->next)
		if (shows_all(m, dev))
			o->home = m;
	if (!o->home)
		rc = window_open(o, dev);
	return rc == CUDA_SUCCESS && o->home->window ? allow(o->home) : rc;
}

CUresult vmem_objects_hold(CUcontext ctx, CUdevice dev)
{
	CUresult rc = CUDA_SUCCESS;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects && rc == CUDA_SUCCESS; i++) {
		struct object *o = objects.objects[i];

		if (!object_is_carried(o) || o->home || o->prop.location.id != dev)
			continue;
		o->ctx = ctx;
		rc = choose_home(o, dev);
	}
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

CUresult vmem_objects_hold_far(CUcontext ctx, CUdevice dev)
{
	CUresult rc = CUDA_SUCCESS;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects && rc != CUDA_ERROR_OUT_OF_MEMORY; i++) {
		struct object *o = objects.objects[i];

		if (!object_is_carried(o) || o->home)
			continue;
		o->ctx = ctx;
		rc = choose_home(o, dev);
		if (rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY)
			continue;
		o->home = NULL;
		windows_close(o);
	}
	pthread_mutex_unlock(&objects.lock);
	return rc == CUDA_ERROR_OUT_OF_MEMORY ? rc : CUDA_SUCCESS;
}

size_t vmem_objects_leave_far(CUmemGenericAllocationHandle *handle)
{
	size_t size = 0;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects && !size; i++) {
		struct object *o = objects.objects[i];

		if (object_is_carried(o) && !o->home) {
			*handle = o->handle;
			size = object_leave(o);
		}
	}
	pthread_mutex_unlock(&objects.lock);
	return size;
}

void vmem_objects_let_go(void)
{
	struct object *gone = NULL;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = objects.nobjects; i-- > 0;) {
		struct object *o = objects.objects[i];

		if (o->ctx && has_window(o) && vm.drv->cuCtxSetCurrent(o->ctx) == CUDA_SUCCESS) {
			windows_close(o);
			vm.drv->cuCtxSetCurrent(NULL);
		}
		o->home = NULL;
		o->ctx = NULL;
		object_put(o, &gone);
	}
	pthread_mutex_unlock(&objects.lock);
	objects_tell_gone(gone);
}

/* True if the driver has a part of the object, but not all. */
static bool is_partial(const struct object *o)
{
	bool some = o->held, all = o->held || !o->refs;

	for (const struct mapping *m = o->maps; m; m = m->next) {
		some |= m->mapped;
		all &= m->mapped;
	}
	return some && !all;
}

bool objects_have_left(void)
{
	bool found = false;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects && !found; i++)
		found = objects.objects[i]->home && is_partial(objects.objects[i]);
	pthread_mutex_unlock(&objects.lock);
	return found;
}

size_t objects_regions(struct vmem_region *regions, size_t max)
{
	size_t n = 0;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects; i++) {
		const struct object *o = objects.objects[i];

		if (!o->home)
			continue;
		if (n < max)
			regions[n] = (struct vmem_region){.start = o->home->start,
							  .size = o->size,
							  .ctx = o->ctx,
							  .dev = o->prop.location.id,
							  .mapped = !o->away};
		n++;
	}
	pthread_mutex_unlock(&objects.lock);
	return n;
}

/* With the lock held: the object whose region starts there, or NULL. */
static struct object *object_of_region(CUdeviceptr start)
{
	const struct mapping *m = mappings_find(start);

	return m && m->object->home == m && m->start == start ? m->object : NULL;
}

size_t vmem_object_mappings(CUdeviceptr start, struct vmem_mapping *mappings, size_t max)
{
	const struct object *o;
	size_t n = 0;

	pthread_mutex_lock(&objects.lock);
	o = object_of_region(start);
	for (const struct mapping *m = o ? o->maps : NULL; m; m = m->next) {
		if (m->window)
			continue;
		if (n < max)
			mappings[n] = (struct vmem_mapping){m->start, m->size, m->offset};
		n++;
	}
	pthread_mutex_unlock(&objects.lock);
	return o ? n : SIZE_MAX;
}

static void set_away(struct object *o, bool away)
{
	if (o->away != away)
		object_count_mapped(o, away ? -1 : 1);
	o->away = away;
}

CUresult object_unmap_all(struct object *o)
{
	CUresult rc = CUDA_SUCCESS;

	for (struct mapping *m = o->maps; m && rc == CUDA_SUCCESS; m = m->next) {
		if (!m->mapped)
			continue;
		rc = vm.drv->cuMemUnmap(m->start, m->size);
		m->mapped = rc != CUDA_SUCCESS;
	}
	return rc;
}

CUresult object_map_all(struct object *o)
{
	CUresult rc = CUDA_SUCCESS;

	for (struct mapping *m = o->maps; m && rc == CUDA_SUCCESS; m = m->next) {
		if (!m->mapped)
			rc = map_part(m);
		m->mapped = rc == CUDA_SUCCESS;
		if (m->mapped)
			rc = allow(m);
	}
	return rc;
}

static CUresult object_unmap(struct object *o)
{
	CUresult rc = object_unmap_all(o);

	if (rc == CUDA_SUCCESS)
		rc = object_unhold(o);
	if (rc == CUDA_SUCCESS)
		set_away(o, true);
	return rc;
}

static CUresult object_map(struct object *o)
{
	CUresult rc;

	if (o->away) {
		rc = vm.drv->cuMemCreate(&o->driver_s, o->size, &o->prop, 0);
		if (rc != CUDA_SUCCESS)
			return rc;
		o->held = true;
		set_away(o, false);
	}
	rc = object_hold(o);
	if (rc == CUDA_SUCCESS)
		rc = object_map_all(o);
	if (rc == CUDA_SUCCESS)
		object_unhold_again(o);
	return rc;
}

static CUresult region_change(CUdeviceptr start, CUresult (*change)(struct object *))
{
	struct object *o;
	CUresult rc;

	pthread_mutex_lock(&objects.lock);
	o = object_of_region(start);
	rc = o ? change(o) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

CUresult objects_region_unmap(CUdeviceptr start)
{
	return region_change(start, object_unmap);
}

CUresult objects_region_map(CUdeviceptr start)
{
	return region_change(start, object_map);
}
