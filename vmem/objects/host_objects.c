/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/objects/host_objects.h"
#include "common/system/forks.h"
#include "common/system/ownfd.h"
#include "vmem/objects/host_file.h"
#include "vmem/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

/* Beside that of objects.c. */
#define HANDLE_TAG  0xcda1UL
#define HANDLE_BITS 48

#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

struct host_object {
	struct host_object *next;
	CUmemGenericAllocationHandle handle;
	struct ownfd file;
	size_t size, granule;
	CUmemAllocationProp prop;
	unsigned int refs, maps;
	bool shared; /* exported or imported */
};

struct host_mapping {
	struct host_mapping *next;
	CUdeviceptr start;
	size_t size;
	struct host_object *object;
	unsigned char devices[GPU_MAX], host; /* CUmemAccess_flags */
	bool open;                            /* the host may touch it */
	bool wanted;                          /* a device may */
	CUcontext ctx;                        /* in which it is registered, or NULL */
};

struct reservation {
	struct reservation *next;
	CUdeviceptr start;
	size_t size;
};

FORKS_LOCK(lock);
/* Under lock, as all that follows. */
static struct host_object *objects_list;
static struct host_mapping *mappings; /* in the order of their addresses */
static struct reservation *reservations;
static CUmemGenericAllocationHandle last;
static bool mapped;  /* there are mappings; atomic, to be read without the lock */
static bool waiting; /* a mapping is to be registered in the next context; the same */

bool host_objects_is_ours(CUmemGenericAllocationHandle handle)
{
	return handle >> HANDLE_BITS == HANDLE_TAG;
}

/* No sum, which could be too large. */
static bool overlaps(CUdeviceptr a, size_t a_size, CUdeviceptr b, size_t b_size)
{
	return a < b ? b - a < a_size : a - b < b_size;
}

static bool is_inside(CUdeviceptr a, size_t a_size, CUdeviceptr b, size_t b_size)
{
	return a >= b && a - b <= b_size && a_size <= b_size - (a - b);
}

static struct host_object *object_find(CUmemGenericAllocationHandle handle)
{
	struct host_object *o = objects_list;

	while (o && o->handle != handle)
		o = o->next;
	return o && o->refs ? o : NULL;
}

static void object_put(struct host_object *o)
{
	struct host_object **p = &objects_list;

	if (o->refs || o->maps)
		return;
	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	ownfd_close(&o->file);
	free(o);
}

/* The first mapping in the range. */
static struct host_mapping *mapping_find(CUdeviceptr ptr, size_t size)
{
	struct host_mapping *m = mappings;

	while (m && m->start < ptr && !overlaps(m->start, m->size, ptr, size))
		m = m->next;
	return m && overlaps(m->start, m->size, ptr, size) ? m : NULL;
}

/* The next one behind @m. */
static struct host_mapping *mapping_next(const struct host_mapping *m, CUdeviceptr ptr, size_t size)
{
	return m->next && overlaps(m->next->start, m->next->size, ptr, size) ? m->next : NULL;
}

static void mapping_insert(struct host_mapping *m)
{
	struct host_mapping **p = &mappings;

	while (*p && (*p)->start < m->start)
		p = &(*p)->next;
	m->next = *p;
	*p = m;
	m->object->maps++;
	__atomic_store_n(&mapped, true, __ATOMIC_RELEASE);
}

static void mapping_remove(struct host_mapping *m)
{
	struct host_mapping **p = &mappings;

	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	m->object->maps--;
	object_put(m->object);
	free(m);
	__atomic_store_n(&mapped, mappings != NULL, __ATOMIC_RELEASE);
}

CUresult host_objects_add(int fd, size_t size, size_t granule, const CUmemAllocationProp *prop,
			  bool shared, CUmemGenericAllocationHandle *handle)
{
	struct host_object *o = calloc(1, sizeof(*o));

	if (!o) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*o = (struct host_object){
		.size = size, .granule = granule, .prop = *prop, .refs = 1, .shared = shared};
	ownfd_set(&o->file, fd);
	pthread_mutex_lock(&lock);
	o->handle = HANDLE_TAG << HANDLE_BITS | ++last;
	o->next = objects_list;
	objects_list = o;
	*handle = o->handle;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult host_objects_release(CUmemGenericAllocationHandle handle)
{
	struct host_object *o;

	pthread_mutex_lock(&lock);
	o = object_find(handle);
	if (o) {
		o->refs--;
		object_put(o);
	}
	pthread_mutex_unlock(&lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult host_objects_retain(CUdeviceptr ptr, CUmemGenericAllocationHandle *handle)
{
	struct host_mapping *m;

	if (!host_objects_overlap(ptr, 1))
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&lock);
	m = mapping_find(ptr, 1);
	if (m) {
		m->object->refs++;
		*handle = m->object->handle;
	}
	pthread_mutex_unlock(&lock);
	return m ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult host_objects_get_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	const struct host_object *o;

	pthread_mutex_lock(&lock);
	o = object_find(handle);
	if (o && prop)
		*prop = o->prop;
	pthread_mutex_unlock(&lock);
	return o && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With lock held. -1: the program has closed it. */
static int file_of(const struct host_object *o)
{
	int fd = ownfd_get(&o->file);

	if (fd < 0)
		pr_err("the program has closed the descriptor of %zu bytes of its host memory "
		       "(cuMemCreate): it cannot be exported or mapped once more",
		       o->size);
	return fd;
}

CUresult host_objects_export(int *fd, CUmemGenericAllocationHandle handle,
			     CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct host_object *o;
	int file, made;

	pthread_mutex_lock(&lock);
	o = object_find(handle);
	if (o && fd && type == POSIX_FD && (o->prop.requestedHandleTypes & type) && !flags) {
		file = file_of(o);
		made = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		rc = made < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
	}
	if (rc == CUDA_SUCCESS) {
		o->shared = true;
		*fd = made;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* An import has no handle types [H200, driver 580.159]: nobody can export it. */
CUresult host_objects_import(int fd, size_t granule, CUmemGenericAllocationHandle *handle)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
	size_t size;
	int copy;

	if (!host_file_read(fd, &size, &prop.location.id) || size % granule)
		return CUDA_ERROR_INVALID_VALUE;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (copy < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return host_objects_add(copy, size, granule, &prop, true, handle);
}

bool host_objects_are_shared(void)
{
	const struct host_object *o;

	pthread_mutex_lock(&lock);
	for (o = objects_list; o && !o->shared;)
		o = o->next;
	pthread_mutex_unlock(&lock);
	return o;
}

/* As the driver has them. */
static bool map_nothing(CUdeviceptr ptr, size_t size)
{
	return mmap((void *)(uintptr_t)ptr, size, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static CUresult map_file(const struct host_object *o, CUdeviceptr ptr, size_t size)
{
	int fd = file_of(o);

	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) !=
	    MAP_FAILED)
		return CUDA_SUCCESS;
	map_nothing(ptr, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* With lock held: addresses that the program has reserved, and where none of ours is. */
static bool is_free(CUdeviceptr ptr, size_t size)
{
	const struct reservation *r = reservations;

	while (r && !is_inside(ptr, size, r->start, r->size))
		r = r->next;
	return r && !mapping_find(ptr, size);
}

static CUresult check_map(const struct host_object *o, CUdeviceptr ptr, size_t size, size_t offset,
			  unsigned long long flags)
{
	if (!o || flags || !size || (ptr | size | offset) % o->granule ||
	    !is_inside(offset, size, 0, o->size))
		return CUDA_ERROR_INVALID_VALUE;
	/* As the driver does [H200, driver 580.159, device memory]. */
	if (offset)
		return CUDA_ERROR_NOT_SUPPORTED;
	return is_free(ptr, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult host_objects_map(CUdeviceptr ptr, size_t size, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct host_mapping *m = calloc(1, sizeof(*m));
	CUresult rc;

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->start = ptr;
	m->size = size;
	pthread_mutex_lock(&lock);
	m->object = object_find(handle);
	rc = check_map(m->object, ptr, size, offset, flags);
	if (rc == CUDA_SUCCESS)
		rc = map_file(m->object, ptr, size);
	if (rc == CUDA_SUCCESS)
		mapping_insert(m);
	pthread_mutex_unlock(&lock);
	if (rc != CUDA_SUCCESS)
		free(m);
	return rc;
}

bool host_objects_overlap(CUdeviceptr ptr, size_t size)
{
	bool found;

	if (!__atomic_load_n(&mapped, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&lock);
	found = mapping_find(ptr, size);
	pthread_mutex_unlock(&lock);
	return found;
}

bool host_objects_split(CUdeviceptr ptr, size_t size)
{
	const struct host_mapping *m;

	pthread_mutex_lock(&lock);
	m = mapping_find(ptr, size);
	while (m && is_inside(m->start, m->size, ptr, size))
		m = mapping_next(m, ptr, size);
	pthread_mutex_unlock(&lock);
	return m;
}

size_t host_objects_gap(CUdeviceptr *ptr, CUdeviceptr end)
{
	const struct host_mapping *m;

	pthread_mutex_lock(&lock);
	while (*ptr < end && (m = mapping_find(*ptr, 1)))
		*ptr = m->start + m->size;
	m = *ptr < end ? mapping_find(*ptr, end - *ptr) : NULL;
	pthread_mutex_unlock(&lock);
	return *ptr < end ? (m ? m->start : end) - *ptr : 0;
}

bool host_objects_lookup(CUdeviceptr ptr, struct host_objects_info *info)
{
	const struct host_mapping *m;

	if (!__atomic_load_n(&mapped, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&lock);
	m = mapping_find(ptr, 1);
	if (m)
		*info = (struct host_objects_info){m->start, m->size,
						   m->object->prop.requestedHandleTypes};
	pthread_mutex_unlock(&lock);
	return m;
}

/*
 * Call @function for @m in @ctx, without the lock, as it may wait for the GPU; nobody else removes @m or registers it
 * meanwhile. Natively nothing is registered here, so the call must not fail beside a capture of the thread, as it
 * would.
 */
static CUresult call_in(CUcontext ctx, CUresult (*function)(const struct host_mapping *m),
			const struct host_mapping *m)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult rc;

	pthread_mutex_unlock(&lock);
	rc = vm.drv->cuCtxPushCurrent_v2(ctx);
	if (rc == CUDA_SUCCESS) {
		vm.drv->cuThreadExchangeStreamCaptureMode(&mode);
		rc = function(m);
		vm.drv->cuThreadExchangeStreamCaptureMode(&mode);
		vm.drv->cuCtxPopCurrent_v2(&ctx);
	}
	pthread_mutex_lock(&lock);
	return rc;
}

static CUresult do_register(const struct host_mapping *m)
{
	return vm.drv->cuMemHostRegister_v2((void *)(uintptr_t)m->start, m->size,
					    CU_MEMHOSTREGISTER_PORTABLE);
}

static CUresult do_unregister(const struct host_mapping *m)
{
	return vm.drv->cuMemHostUnregister((void *)(uintptr_t)m->start);
}

static CUresult mapping_register(struct host_mapping *m, CUcontext ctx)
{
	CUresult rc = call_in(ctx, do_register, m);

	if (rc == CUDA_SUCCESS)
		m->ctx = ctx;
	return rc;
}

/* The context has ended unseen. */
static bool is_gone(CUresult rc)
{
	return rc == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED || rc == CUDA_ERROR_INVALID_CONTEXT ||
	       rc == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult mapping_close(struct host_mapping *m)
{
	CUresult rc = m->ctx ? call_in(m->ctx, do_unregister, m) : CUDA_SUCCESS;

	if (rc != CUDA_SUCCESS && !is_gone(rc))
		return rc;
	m->ctx = NULL;
	m->wanted = false;
	if (!map_nothing(m->start, m->size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping_remove(m);
	return CUDA_SUCCESS;
}

CUresult host_objects_unmap(CUdeviceptr ptr, size_t size)
{
	CUresult rc = CUDA_SUCCESS;
	struct host_mapping *m;

	pthread_mutex_lock(&lock);
	while (rc == CUDA_SUCCESS && (m = mapping_find(ptr, size)))
		rc = is_inside(m->start, m->size, ptr, size) ? mapping_close(m)
							     : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* The driver takes any node, one that is not there too [H200, driver 580.159]. */
static CUresult check_access(const CUmemAccessDesc *desc, size_t count)
{
	int devices = 0;

	for (size_t i = 0; i < count; i++) {
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		switch (desc[i].location.type) {
		case CU_MEM_LOCATION_TYPE_DEVICE:
			if (vm.drv->cuDeviceGetCount(&devices) || desc[i].location.id < 0 ||
			    desc[i].location.id >= devices || desc[i].location.id >= GPU_MAX)
				return CUDA_ERROR_INVALID_DEVICE;
			break;
		case CU_MEM_LOCATION_TYPE_HOST:
		case CU_MEM_LOCATION_TYPE_HOST_NUMA:
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

static unsigned char *access_of(struct host_mapping *m, const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? &m->devices[location->id] : &m->host;
}

static CUresult mapping_allow(struct host_mapping *m, const CUmemAccessDesc *desc, size_t count,
			      CUcontext ctx)
{
	bool opens = false, wants = false;
	CUresult rc = CUDA_SUCCESS;

	for (size_t i = 0; i < count; i++) {
		bool any = desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;

		opens |= any;
		wants |= any && desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	}
	if (opens && !m->open) {
		if (mprotect((void *)(uintptr_t)m->start, m->size, PROT_READ | PROT_WRITE))
			return CUDA_ERROR_OUT_OF_MEMORY;
		m->open = true;
	}
	if (wants && !m->ctx && ctx)
		rc = mapping_register(m, ctx);
	if (rc != CUDA_SUCCESS)
		return rc;
	m->wanted |= wants;
	if (m->wanted && !m->ctx)
		__atomic_store_n(&waiting, true, __ATOMIC_RELEASE);
	for (size_t i = 0; i < count; i++)
		*access_of(m, &desc[i].location) = (unsigned char)desc[i].flags;
	return CUDA_SUCCESS;
}

CUresult host_objects_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				 size_t count, CUcontext ctx)
{
	CUresult rc = check_access(desc, count);
	struct host_mapping *m;

	pthread_mutex_lock(&lock);
	for (m = mapping_find(ptr, size); m && rc == CUDA_SUCCESS; m = mapping_next(m, ptr, size))
		rc = mapping_allow(m, desc, count, ctx);
	pthread_mutex_unlock(&lock);
	return rc;
}

CUresult host_objects_get_access(unsigned long long *flags, const CUmemLocation *location,
				 CUdeviceptr ptr)
{
	const CUmemAccessDesc desc = {.location = *location};
	struct host_mapping *m;

	if (check_access(&desc, 1) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	m = mapping_find(ptr, 1);
	if (m)
		*flags = *access_of(m, location);
	pthread_mutex_unlock(&lock);
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void host_objects_context_gone(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (struct host_mapping *m = mappings; m; m = m->next)
		if (m->ctx == ctx) {
			m->ctx = NULL;
			__atomic_store_n(&waiting, true, __ATOMIC_RELEASE);
		}
	pthread_mutex_unlock(&lock);
}

bool host_objects_wait(void)
{
	return __atomic_load_n(&waiting, __ATOMIC_ACQUIRE);
}

void host_objects_register(CUcontext ctx)
{
	bool waits = false;

	pthread_mutex_lock(&lock);
	for (struct host_mapping *m = mappings; m; m = m->next) {
		CUresult rc = m->wanted && !m->ctx ? mapping_register(m, ctx) : CUDA_SUCCESS;

		if (rc != CUDA_SUCCESS)
			pr_err_once("%zu bytes of host memory (cuMemCreate) cannot be registered "
				    "in a context after their own has ended: driver error %d",
				    m->size, rc);
		waits |= rc != CUDA_SUCCESS;
	}
	__atomic_store_n(&waiting, waits, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

bool host_objects_reserve(CUdeviceptr ptr, size_t size)
{
	struct reservation *r = malloc(sizeof(*r));

	if (!r)
		return false;
	pthread_mutex_lock(&lock);
	*r = (struct reservation){reservations, ptr, size};
	reservations = r;
	pthread_mutex_unlock(&lock);
	return true;
}

bool host_objects_unreserve(CUdeviceptr ptr, size_t size, bool *known)
{
	struct reservation **p = &reservations, *r;
	bool is_mapped;

	pthread_mutex_lock(&lock);
	is_mapped = mapping_find(ptr, size);
	while (*p && ((*p)->start != ptr || (*p)->size != size))
		p = &(*p)->next;
	r = is_mapped ? NULL : *p;
	if (r)
		*p = r->next;
	pthread_mutex_unlock(&lock);
	*known = r;
	free(r);
	return !is_mapped;
}
