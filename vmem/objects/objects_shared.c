/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "vmem/objects/objects_internal.h"
#include "vmem/legacy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

CUresult objects_share(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
		       unsigned long long flags, const struct object_name *fresh,
		       struct object_name *name)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct object *o;
	int fd;

	pthread_mutex_lock(&objects.lock);
	o = object_find(handle);
	if (o)
		rc = vm.drv->cuMemExportToShareableHandle(&fd, o->driver_s, type, flags);
	if (rc == CUDA_SUCCESS) {
		close(fd);
		if (!o->shared)
			o->name = *fresh;
		o->shared = true;
		*name = o->name;
	}
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

/* This process's own object with that key, or NULL. */
static struct object *find_key(const unsigned char key[OBJECT_KEY])
{
	for (size_t i = 0; i < objects.nobjects; i++) {
		struct object *o = objects.objects[i];

		if (o->shared && !o->import && !memcmp(o->name.key, key, OBJECT_KEY))
			return o;
	}
	return NULL;
}

bool objects_add_ticket(const unsigned char key[OBJECT_KEY], const struct beacon *beacon)
{
	struct ticket *t = malloc(sizeof(*t));
	struct object *o;

	if (!t)
		return false;
	pthread_mutex_lock(&objects.lock);
	o = find_key(key);
	if (o) {
		*t = (struct ticket){.beacon = *beacon};
		object_add_ticket(o, t);
	}
	pthread_mutex_unlock(&objects.lock);
	if (!o)
		free(t);
	return o;
}

bool objects_have_key(const unsigned char key[OBJECT_KEY])
{
	bool have;

	pthread_mutex_lock(&objects.lock);
	have = find_key(key);
	pthread_mutex_unlock(&objects.lock);
	return have || legacy_has(key);
}

static CUresult export_object(struct object *o, int *fd, size_t *size)
{
	CUresult rc = o->away ? CUDA_ERROR_NOT_READY : object_hold(o);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = vm.drv->cuMemExportToShareableHandle(fd, o->driver_s,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	*size = o->size;
	object_unhold_again(o);
	return rc;
}

/* The lock of a device is taken inside that of the objects: no export is under way once it is closed. */
CUresult objects_export(const unsigned char key[OBJECT_KEY], int *fd, size_t *size)
{
	struct object *o;
	CUresult rc;

	pthread_mutex_lock(&objects.lock);
	o = find_key(key);
	if (!o && !legacy_has(key))
		rc = CUDA_ERROR_INVALID_VALUE;
	else if (objects.closed)
		rc = CUDA_ERROR_NOT_READY;
	else
		rc = o ? export_object(o, fd, size) : shared_export(key, fd, size);
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

static void set_closed(bool closed)
{
	pthread_mutex_lock(&objects.lock);
	objects.closed = closed;
	pthread_mutex_unlock(&objects.lock);
}

void objects_close_exports(void)
{
	set_closed(true);
}

void objects_open_exports(void)
{
	set_closed(false);
}

CUresult objects_import_begin(const struct object_name *name, CUmemGenericAllocationHandle *handle)
{
	struct object *o = calloc(1, sizeof(*o));
	bool inserted;

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*o = (struct object){
		.shared = true, .import = true, .name = *name, .away = true, .refs = 1};
	pthread_mutex_lock(&objects.lock);
	inserted = object_insert(o);
	if (inserted)
		*handle = o->handle;
	pthread_mutex_unlock(&objects.lock);
	if (!inserted)
		free(o);
	return inserted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The program may have released its references, and keep mappings. */
static struct object *find_import(CUmemGenericAllocationHandle handle)
{
	struct object *o = object_at(handle);

	return o && o->import ? o : NULL;
}

static CUresult release_import(struct object *o)
{
	CUresult rc = object_unmap_all(o);

	if (rc == CUDA_SUCCESS)
		rc = object_unhold(o);
	o->away = rc == CUDA_SUCCESS;
	return rc;
}

static CUresult import_and_map(struct object *o, int fd)
{
	CUresult rc = vm.drv->cuMemImportFromShareableHandle(
		&o->driver_s, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (rc != CUDA_SUCCESS)
		return rc;
	o->held = true;
	o->away = false;
	rc = object_map_all(o);
	if (rc != CUDA_SUCCESS)
		release_import(o);
	else
		object_unhold_again(o);
	return rc;
}

CUresult objects_import(CUmemGenericAllocationHandle handle, int fd, size_t size, uint64_t build)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct object *o;

	pthread_mutex_lock(&objects.lock);
	o = find_import(handle);
	if (o && o->away && size && (!o->size || o->size == size))
		rc = import_and_map(o, fd);
	if (rc == CUDA_SUCCESS) {
		o->size = size;
		o->build = build;
	}
	pthread_mutex_unlock(&objects.lock);
	return rc;
}

void objects_import_drop(CUmemGenericAllocationHandle handle)
{
	objects_release(handle);
}

bool objects_next_import(struct object_import *import)
{
	bool found = false;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = object_index(import->handle + 1); i < objects.nobjects && !found; i++) {
		const struct object *o = objects.objects[i];

		found = o->import && !o->orphan;
		if (found)
			*import = (struct object_import){o->handle, o->name,  o->build,
							 o->away,   !o->size, o->left};
	}
	pthread_mutex_unlock(&objects.lock);
	return found;
}

void objects_import_orphan(CUmemGenericAllocationHandle handle)
{
	struct object *o;

	pthread_mutex_lock(&objects.lock);
	o = find_import(handle);
	if (o)
		o->left = o->orphan = true;
	pthread_mutex_unlock(&objects.lock);
}

CUresult objects_release_imports(const unsigned char instance[OBJECT_KEY])
{
	CUresult first = CUDA_SUCCESS;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects; i++) {
		struct object *o = objects.objects[i];
		CUresult rc = CUDA_SUCCESS;

		if (o->import && !o->left && !o->away &&
		    (!instance || !memcmp(o->name.instance, instance, OBJECT_KEY)))
			rc = release_import(o);
		if (first == CUDA_SUCCESS)
			first = rc;
	}
	pthread_mutex_unlock(&objects.lock);
	return first;
}

size_t objects_shared_held(void)
{
	size_t n = 0;

	pthread_mutex_lock(&objects.lock);
	for (size_t i = 0; i < objects.nobjects; i++) {
		const struct object *o = objects.objects[i];

		n += o->shared && !o->left && !o->away;
	}
	pthread_mutex_unlock(&objects.lock);
	return n + legacy_held();
}
