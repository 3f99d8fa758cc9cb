/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/objects/host_objects.h"
#include "vmem/internal.h"
#include "vmem/objects/objects_internal.h"
#include "vmem/trimming.h"

#include "common/protocol/quota.h"
#include "common/system/forks.h"

#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

/* The driver's handles are addresses or small numbers, which have zeros here. */
#define HANDLE_TAG  0xcda0UL
#define HANDLE_BITS 48

struct objects objects = {.lock = PTHREAD_MUTEX_INITIALIZER};
FORKS_LOCK_IN(objects, lock);

/* The linker's names for the section's ends; NULL if nobody wants to hear. */
extern const object_gone_fn __start_cudaw_object_gone[] __attribute__((weak, visibility("hidden")));
extern const object_gone_fn __stop_cudaw_object_gone[] __attribute__((weak, visibility("hidden")));

bool objects_is_ours(CUmemGenericAllocationHandle handle)
{
	return handle >> HANDLE_BITS == HANDLE_TAG;
}

size_t object_index(CUmemGenericAllocationHandle handle)
{
	size_t low = 0, high = objects.nobjects;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (objects.objects[mid]->handle < handle)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct object *object_at(CUmemGenericAllocationHandle handle)
{
	size_t i = object_index(handle);
	struct object *o = i < objects.nobjects ? objects.objects[i] : NULL;

	return o && o->handle == handle ? o : NULL;
}

struct object *object_find(CUmemGenericAllocationHandle handle)
{
	struct object *o = object_at(handle);

	return o && o->refs ? o : NULL;
}

size_t mappings_index(CUdeviceptr ptr)
{
	size_t low = 0, high = objects.nmaps;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (objects.maps[mid]->start + objects.maps[mid]->size > ptr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

struct mapping *mappings_find(CUdeviceptr ptr)
{
	size_t i = mappings_index(ptr);

	return i < objects.nmaps && objects.maps[i]->start <= ptr ? objects.maps[i] : NULL;
}

/* Make @array, of *@room places, longer than @count. */
static bool reserve(void **array, size_t *room, size_t count)
{
	size_t wanted = *room ? 2 * *room : 64;
	void *grown;

	if (count < *room)
		return true;
	grown = reallocarray(*array, wanted, sizeof(void *));
	if (!grown)
		return false;
	*array = grown;
	*room = wanted;
	return true;
}

bool mappings_reserve(void)
{
	return reserve((void **)&objects.maps, &objects.maps_room, objects.nmaps);
}

void mappings_insert(struct mapping *m)
{
	size_t i = mappings_index(m->start);

	memmove(&objects.maps[i + 1], &objects.maps[i],
		(objects.nmaps - i) * sizeof(*objects.maps));
	objects.maps[i] = m;
	objects.nmaps++;
	m->next = m->object->maps;
	m->object->maps = m;
}

void mappings_remove(struct mapping *m)
{
	size_t i = mappings_index(m->start);
	struct mapping **p = &m->object->maps;
	struct access *a;

	objects.nmaps--;
	memmove(&objects.maps[i], &objects.maps[i + 1],
		(objects.nmaps - i) * sizeof(*objects.maps));
	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	while ((a = m->access)) {
		m->access = a->next;
		free(a);
	}
	free(m);
}

static void add(size_t *sum, size_t amount, int sign)
{
	__atomic_store_n(sum, sign > 0 ? *sum + amount : *sum - amount, __ATOMIC_RELAXED);
}

void object_count_mapped(const struct object *o, int sign)
{
	add(&objects.stats[o->prop.location.id].mapped, o->size, sign);
}

void object_count(const struct object *o, int sign)
{
	struct vmem_stats *stats = &objects.stats[o->prop.location.id];

	add(&stats->carried, o->size, sign);
	add(&stats->nalloc, 1, sign);
	object_count_mapped(o, sign);
}

void object_succeed(struct object *o)
{
	for (size_t i = 0; i < objects.nobjects && o->shared && !o->import && !o->left; i++) {
		struct object *heir = objects.objects[i];

		if (!heir->import || heir->away || heir->left ||
		    memcmp(heir->name.key, o->name.key, OBJECT_KEY))
			continue;
		heir->import = false;
		heir->prop = o->prop;
		heir->taken = o->taken;
		o->taken = false;
		object_count(heir, 1);
		return;
	}
}

void objects_get_stats(CUdevice dev, struct vmem_stats *stats)
{
	const struct vmem_stats *own = &objects.stats[dev];

	stats->carried += __atomic_load_n(&own->carried, __ATOMIC_RELAXED);
	stats->mapped += __atomic_load_n(&own->mapped, __ATOMIC_RELAXED);
	stats->nalloc += __atomic_load_n(&own->nalloc, __ATOMIC_RELAXED);
}

bool object_is_carried(const struct object *o)
{
	return !o->left && !o->import;
}

bool object_insert(struct object *o)
{
	if (!reserve((void **)&objects.objects, &objects.objects_room, objects.nobjects))
		return false;
	o->handle = HANDLE_TAG << HANDLE_BITS | ++objects.last;
	objects.objects[objects.nobjects++] = o;
	return true;
}

static bool is_plain(size_t size, const CUmemAllocationProp *prop)
{
	return prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
	       prop->location.id < GPU_MAX && !prop->allocFlags.usage && size % VMEM_GRANULE == 0;
}

bool objects_add(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop)
{
	struct object *o;
	bool room;

	if (!vm.drv || !vm.drv->cuMemRetainAllocationHandle || !is_plain(size, prop))
		return false;
	o = calloc(1, sizeof(*o));
	if (!o)
		return false;
	*o = (struct object){.driver_s = *handle,
			     .held = true,
			     .size = size,
			     .prop = *prop,
			     .refs = 1,
			     .taken = true};
	pthread_mutex_lock(&objects.lock);
	room = object_insert(o);
	if (room) {
		object_count(o, 1);
		*handle = o->handle;
	}
	pthread_mutex_unlock(&objects.lock);
	if (!room)
		free(o);
	return room;
}

CUresult objects_find(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *driver_s)
{
	const struct object *o;

	*driver_s = handle;
	if (!objects_is_ours(handle))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&objects.lock);
	o = object_find(handle);
	if (o)
		*driver_s = o->driver_s;
	pthread_mutex_unlock(&objects.lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult object_hold(struct object *o)
{
	const struct mapping *m = o->maps;
	CUresult rc;

	if (o->held)
		return CUDA_SUCCESS;
	while (m && !m->mapped)
		m = m->next;
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	rc = vm.drv->cuMemRetainAllocationHandle(&o->driver_s, (void *)(uintptr_t)m->start);
	o->held = rc == CUDA_SUCCESS;
	return rc;
}

CUresult object_unhold(struct object *o)
{
	CUresult rc = o->held ? vm.drv->cuMemRelease(o->driver_s) : CUDA_SUCCESS;

	if (rc == CUDA_SUCCESS)
		o->held = false;
	return rc;
}

void object_unhold_again(struct object *o)
{
	CUresult rc = o->refs || object_has_ticket(o) ? CUDA_SUCCESS : object_unhold(o);

	if (rc != CUDA_SUCCESS)
		pr_warn("cannot release the handle of %zu bytes: driver error %d", o->size, rc);
}

void object_put(struct object *o, struct object **gone)
{
	size_t i = object_index(o->handle);
	CUresult rc;

	if (o->refs || o->maps)
		return;
	if (object_has_ticket(o)) {
		objects.kept = true;
		return;
	}
	/* It is held for a ticket that is closed, or as the driver did not release it after a pause. */
	rc = object_unhold(o);
	if (rc != CUDA_SUCCESS)
		pr_warn("cannot release the handle of %zu bytes: driver error %d", o->size, rc);
	objects.nobjects--;
	memmove(&objects.objects[i], &objects.objects[i + 1],
		(objects.nobjects - i) * sizeof(*objects.objects));
	if (object_is_carried(o))
		object_count(o, -1);
	object_succeed(o);
	if (o->taken)
		quota_give(o->prop.location.id, o->size);
	o->gone = *gone;
	*gone = o;
}

void objects_tell_gone(struct object *gone)
{
	struct object *o;

	while ((o = gone)) {
		gone = o->gone;
		for (const object_gone_fn *function = __start_cudaw_object_gone;
		     function < __stop_cudaw_object_gone; function++)
			(*function)(o->handle);
		free(o);
	}
}

void objects_put_kept(void)
{
	struct object *gone = NULL;

	pthread_mutex_lock(&objects.lock);
	if (objects.kept && !objects.closed) {
		objects.kept = false;
		for (size_t i = objects.nobjects; i-- > 0;)
			object_put(objects.objects[i], &gone);
	}
	pthread_mutex_unlock(&objects.lock);
	if (gone)
		vmem_note_given_back();
	objects_tell_gone(gone);
}
VMEM_TRIMMING(objects_put_kept);

CUresult objects_release(CUmemGenericAllocationHandle handle)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct object *o, *gone = NULL;

	if (!objects_is_ours(handle))
		return vm.drv->cuMemRelease(handle);
	pthread_mutex_lock(&objects.lock);
	o = object_find(handle);
	if (o)
		rc = o->refs > 1 || object_has_ticket(o) ? CUDA_SUCCESS : object_unhold(o);
	if (rc == CUDA_SUCCESS) {
		o->refs--;
		object_put(o, &gone);
	}
	pthread_mutex_unlock(&objects.lock);
	objects_tell_gone(gone);
	return rc;
}

CUresult objects_retain(CUdeviceptr ptr, CUmemGenericAllocationHandle *handle)
{
	CUresult rc = CUDA_ERROR_NOT_FOUND;
	const struct mapping *m;

	pthread_mutex_lock(&objects.lock);
	m = mappings_find(ptr);
	if (m)
		rc = object_hold(m->object);
	if (rc == CUDA_SUCCESS) {
		m->object->refs++;
		*handle = m->object->handle;
	}
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

CUresult objects_map(CUdeviceptr ptr, size_t size, size_t offset,
		     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct mapping *m;

	if (!objects_is_ours(handle))
		return vm.drv->cuMemMap(ptr, size, offset, handle, flags);
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*m = (struct mapping){.start = ptr, .size = size, .offset = offset, .mapped = true};
	pthread_mutex_lock(&objects.lock);
	m->object = object_find(handle);
	if (m->object)
		rc = mappings_reserve()
			     ? vm.drv->cuMemMap(ptr, size, offset, m->object->driver_s, flags)
			     : CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == CUDA_SUCCESS)
		mappings_insert(m);
	pthread_mutex_unlock(&objects.lock);
	if (rc != CUDA_SUCCESS)
		free(m);
	return rc;
}

/* By the driver: whether no allocation that has a handle is mapped there. */
static bool is_unmapped(CUdeviceptr ptr)
{
	CUmemGenericAllocationHandle handle;

	if (vm.drv->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr))
		return true;
	vm.drv->cuMemRelease(handle);
	return false;
}

CUresult objects_unmap(CUdeviceptr ptr, size_t size)
{
	struct object *gone = NULL;
	CUresult rc;
	size_t i;

	pthread_mutex_lock(&objects.lock);
	rc = vm.drv->cuMemUnmap(ptr, size);
	i = mappings_index(ptr);
	while (i < objects.nmaps && objects.maps[i]->start < ptr + size) {
		struct mapping *m = objects.maps[i];
		bool whole = m->start >= ptr && m->start + m->size <= ptr + size;
		struct object *o = m->object;

		/* After a call that failed, or named a part, the driver knows. */
		if ((rc != CUDA_SUCCESS || !whole) && !is_unmapped(m->start)) {
			i++;
			continue;
		}
		mappings_remove(m);
		object_put(o, &gone);
	}
	pthread_mutex_unlock(&objects.lock);
	objects_tell_gone(gone);
	return rc;
}

/* The part of @m in the @size bytes from @ptr. */
static void clip(const struct mapping *m, CUdeviceptr ptr, size_t size, struct access *a)
{
	CUdeviceptr end = m->start + m->size < ptr + size ? m->start + m->size : ptr + size;

	a->start = m->start > ptr ? m->start : ptr;
	a->size = end - a->start;
}

/* Note the access, and forget the notes that it replaces. No access needs no note of its own. */
static void access_note(struct mapping *m, struct access *noted)
{
	bool needed = noted->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	struct access **p = &m->access, *a;

	while ((a = *p)) {
		bool same = a->location.type == noted->location.type &&
			    a->location.id == noted->location.id;

		if (same && a->start >= noted->start &&
		    a->start + a->size <= noted->start + noted->size) {
			*p = a->next;
			free(a);
		} else {
			needed |= same;
			p = &a->next;
		}
	}
	noted->next = NULL;
	if (needed)
		*p = noted;
	else
		free(noted);
}

/* A note for each location of each mapping in the range; false: no memory for one. */
static bool make_notes(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count,
		       struct access **notes)
{
	for (size_t i = mappings_index(ptr);
	     i < objects.nmaps && objects.maps[i]->start < ptr + size; i++)
		for (size_t d = 0; d < count; d++) {
			struct access *a = calloc(1, sizeof(*a));

			if (!a)
				return false;
			a->location = desc[d].location;
			a->flags = desc[d].flags;
			clip(objects.maps[i], ptr, size, a);
			a->next = NULL;
			*notes = a;
			notes = &a->next;
		}
	return true;
}

CUresult objects_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct access *notes = NULL, *a;
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&objects.lock);
	if (make_notes(ptr, size, desc, desc ? count : 0, &notes))
		rc = vm.drv->cuMemSetAccess(ptr, size, desc, count);
	while ((a = notes)) {
		notes = a->next;
		if (rc == CUDA_SUCCESS)
			access_note(mappings_find(a->start), a);
		else
			free(a);
	}
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

size_t object_leave(struct object *o)
{
	if (o->left)
		return 0;
	if (object_is_carried(o))
		object_count(o, -1);
	o->left = true;
	return o->size;
}

size_t objects_leave(CUmemGenericAllocationHandle handle)
{
	struct object *o;
	size_t size;

	pthread_mutex_lock(&objects.lock);
	o = object_at(handle);
	size = o ? object_leave(o) : 0;
	pthread_mutex_unlock(&objects.lock);
	return size;
}

bool objects_next(CUdeviceptr *ptr, CUdeviceptr end, CUmemGenericAllocationHandle *handle)
{
	const struct mapping *m = NULL;
	size_t i;

	pthread_mutex_lock(&objects.lock);
	i = mappings_index(*ptr);
	if (i < objects.nmaps && objects.maps[i]->start < end) {
		m = objects.maps[i];
		*handle = m->object->handle;
		*ptr = m->start + m->size;
	}
	pthread_mutex_unlock(&objects.lock);
	return m;
}

size_t objects_bytes(CUdeviceptr ptr)
{
	CUdeviceptr end = ptr;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = mappings_index(ptr); i < objects.nmaps && objects.maps[i]->start <= end;
	     i++)
		end = objects.maps[i]->start + objects.maps[i]->size;
	pthread_mutex_unlock(&objects.lock);
	return end == ptr || (is_unmapped(end) && !host_objects_overlap(end, 1)) ? end - ptr
										 : SIZE_MAX;
}
