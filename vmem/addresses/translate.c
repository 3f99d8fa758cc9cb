/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/addresses/translate.h"
#include "vmem/addresses/places.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

_Static_assert(VMEM_BASE % VMEM_GRANULE == 0, "an offset into a granule is one of the address");

struct translation translation;

static struct cuda_driver base; /* the driver before translate_driver() */

/* The last real address of each mapping, by its first granule, to see whether it moved. */
static CUdeviceptr *last;

/* Let granule @i be at @real; 0: nowhere. The record of addresses given to kernels stays. */
static void set_granule(size_t i, CUdeviceptr real, CUdeviceptr gap)
{
	__atomic_fetch_and(&translation.real[i], TRANSLATE_GIVEN, __ATOMIC_RELAXED);
	if (real)
		__atomic_fetch_or(&translation.real[i], real | gap, __ATOMIC_RELAXED);
}

/* Let [@start, @start + @size) and the gaps around it be at @real; 0: nowhere. */
static void set_real(CUdeviceptr start, size_t size, CUdeviceptr real)
{
	size_t before = translate_granule(start) - 1, behind = translate_granule(start + size);

	for (size_t i = before; i <= behind; i++)
		set_granule(i, real ? real + (i - before - 1) * VMEM_GRANULE : 0,
			    i == before || i == behind ? TRANSLATE_GAP : 0);
}

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			unsigned long long flags)
{
	void *mem = mmap((void *)addr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);

	(void)alignment;
	(void)flags;
	if (mem == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = (CUdeviceptr)mem;
	return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr ptr, size_t size)
{
	return munmap((void *)ptr, size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUdeviceptr real;
	CUresult rc = base.cuMemAlloc_v2(&real, size);

	(void)prop;
	(void)flags;
	if (rc == CUDA_SUCCESS)
		*handle = real;
	return rc;
}

/* The memory lives until it is unmapped. */
static CUresult release(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr ptr, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUdeviceptr *before = &last[translate_granule(ptr)];

	(void)offset;
	(void)flags;
	if (places_add(handle, ptr, size)) {
		base.cuMemFree_v2(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	set_real(ptr, size, handle);
	if (*before && *before != handle)
		__atomic_add_fetch(&translation.moves, 1, __ATOMIC_SEQ_CST);
	*before = handle;
	pr_debug("%zu bytes at 0x%llx are at 0x%llx", size, ptr, handle);
	return CUDA_SUCCESS;
}

void translate_forget(CUdeviceptr ptr, size_t size)
{
	places_remove(translate(ptr), ptr);
	set_real(ptr, size, 0);
}

void translate_forget_given(CUdeviceptr ptr, size_t size)
{
	const size_t gaps[] = {translate_granule(ptr) - 1, translate_granule(ptr + size)};

	for (int i = 0; i < 2; i++)
		__atomic_fetch_and(&translation.real[gaps[i]], ~TRANSLATE_GIVEN, __ATOMIC_RELAXED);
}

static CUdeviceptr given_bit(CUdeviceptr ptr)
{
	return ptr % VMEM_GRANULE ? TRANSLATE_OTHER_GIVEN : TRANSLATE_FIRST_GIVEN;
}

void translate_note(CUdeviceptr ptr, CUdeviceptr entry)
{
	if (!(entry & given_bit(ptr)))
		__atomic_fetch_or(&translation.real[translate_granule(ptr)], given_bit(ptr),
				  __ATOMIC_RELAXED);
}

enum how { INSIDE, GIVEN, NEVER_GIVEN };

/* Whether @ptr is inside the mapping that it is near, or was given to a kernel. */
static enum how how(CUdeviceptr ptr)
{
	CUdeviceptr entry = translate_entry(ptr);

	if (!(entry & TRANSLATE_GAP))
		return INSIDE;
	return entry & given_bit(ptr) ? GIVEN : NEVER_GIVEN;
}

static CUdeviceptr back(CUdeviceptr real, bool outside_too, bool *unclear)
{
	struct place near[PLACES_NEAR];
	size_t n = translate_is_on() ? places_near(real, VMEM_GRANULE, near) : 0;
	CUdeviceptr found = real;
	bool inside = false;

	for (size_t i = 0; i < n; i++) {
		CUdeviceptr ptr = near[i].start + (real - near[i].real);
		bool outside = how(ptr) != INSIDE;

		if (how(ptr) == NEVER_GIVEN || (outside && !outside_too))
			continue;
		*unclear |= found != real || (outside && ptr != near[i].start + near[i].size);
		if (!inside)
			found = ptr;
		inside |= !outside;
	}
	return found;
}

CUdeviceptr translate_back(CUdeviceptr real)
{
	bool unclear = false;

	return back(real, false, &unclear);
}

CUdeviceptr translate_back_given(CUdeviceptr real, bool *unclear)
{
	return back(real, true, unclear);
}

static CUresult unmap(CUdeviceptr ptr, size_t size)
{
	CUresult rc = base.cuMemFree_v2(translate(ptr));

	if (rc == CUDA_SUCCESS)
		translate_forget(ptr, size);
	return rc;
}

/* cuCtxEnablePeerAccess() alone gives peers access to real memory. */
static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	(void)ptr;
	(void)size;
	(void)desc;
	(void)count;
	return CUDA_SUCCESS;
}

static CUresult granularity(size_t *size, const CUmemAllocationProp *prop,
			    CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*size = VMEM_GRANULE;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	if (attribute != CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
		return base.cuDeviceGetAttribute(value, attribute, dev);
	*value = 1;
	return CUDA_SUCCESS;
}

static CUresult copy_out(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return base.cuMemcpyDtoHAsync_v2(dst, translate(src), size, stream);
}

static CUresult copy_in(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
	return base.cuMemcpyHtoDAsync_v2(translate(dst), src, size, stream);
}

static CUresult set(CUdeviceptr dst, unsigned char value, size_t size, CUstream stream)
{
	return base.cuMemsetD8Async(translate(dst), value, size, stream);
}

/* The digests' kernels would be given pointers that are not translated: there are no digests. */
static CUresult load(CUmodule *module, const void *image)
{
	(void)module;
	(void)image;
	return CUDA_ERROR_NOT_SUPPORTED;
}

int translate_driver(struct cuda_driver *drv)
{
	size_t bytes = TRANSLATE_SIZE / VMEM_GRANULE * sizeof(CUdeviceptr);
	char *mem = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -ENOMEM;
	base = *drv;
	last = (CUdeviceptr *)(mem + bytes);
	translation.real = (void *)mem;
	drv->cuMemAddressReserve = reserve;
	drv->cuMemAddressFree = address_free;
	drv->cuMemCreate = create;
	drv->cuMemRelease = release;
	drv->cuMemMap = map;
	drv->cuMemUnmap = unmap;
	drv->cuMemSetAccess = set_access;
	drv->cuMemGetAllocationGranularity = granularity;
	drv->cuDeviceGetAttribute = get_attribute;
	drv->cuMemcpyDtoHAsync_v2 = copy_out;
	drv->cuMemcpyHtoDAsync_v2 = copy_in;
	drv->cuMemsetD8Async = set;
	drv->cuModuleLoadData = load;
	return 0;
}
