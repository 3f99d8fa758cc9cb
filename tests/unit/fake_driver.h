/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FAKE_DRIVER_H
#define CUDAW_FAKE_DRIVER_H
/*
 * The memory management of a driver, without memory: it keeps the books of handles, mappings and
 * access rights, aborts the test on what the real driver forbids, and can fail any call.
 */
#include "vmem/vmem.h"

#include <check.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define FAKE_DEVICES  3
#define FAKE_NO_VMM   2 /* this device cannot map */
#define FAKE_MAX_MAPS 8192
#define FAKE_MUST(cond)                                            \
	do {                                                       \
		if (!(cond))                                       \
			ck_abort_msg("driver misused: %s", #cond); \
	} while (0)

enum fake_call {
	FAKE_ATTRIBUTE,
	FAKE_GRANULARITY,
	FAKE_RESERVE,
	FAKE_ADDRESS_FREE,
	FAKE_CREATE,
	FAKE_MAP,
	FAKE_RELEASE,
	FAKE_ACCESS,
	FAKE_UNMAP,
	FAKE_NCALLS
};

struct fake_memory {
	size_t size;
	CUdevice dev;
	bool handle; /* not released */
	CUdeviceptr at;
	uint64_t users; /* devices that may access it, as bits */
};

static struct {
	pthread_mutex_t lock;
	unsigned int calls, count[FAKE_NCALLS];
	unsigned int fail_at; /* the call that fails, counted over all kinds from 1 */
	bool failed;
	enum fake_call failed_call;
	CUresult fail_with;
	CUresult unmap_fails; /* while it is not CUDA_SUCCESS */
	size_t limit[FAKE_DEVICES], used[FAKE_DEVICES];
	bool slow[FAKE_DEVICES], waits[FAKE_DEVICES]; /* cuMemCreate() waits while it is slow */
	size_t reserve_max;                           /* 0: no limit */
	CUdeviceptr reserve_at;                       /* 0: as asked for */
	CUdeviceptr reserved[16];
	size_t reserved_size[16];
	unsigned int nreserved;
	struct fake_memory mem[FAKE_MAX_MAPS];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult fake_enter(enum fake_call call)
{
	pthread_mutex_lock(&fake.lock);
	fake.count[call]++;
	if (++fake.calls == fake.fail_at) {
		fake.failed = true;
		fake.failed_call = call;
		return fake.fail_with;
	}
	return call == FAKE_UNMAP ? fake.unmap_fails : CUDA_SUCCESS;
}

static CUresult fake_leave(CUresult rc)
{
	pthread_mutex_unlock(&fake.lock);
	return rc;
}

/* Memory lives as long as its handle or its mapping. */
static void fake_settle(struct fake_memory *m)
{
	if (m->size && !m->handle && !m->at) {
		fake.used[m->dev] -= m->size;
		m->size = 0;
	}
}

static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	CUresult rc = fake_enter(FAKE_ATTRIBUTE);

	FAKE_MUST(dev < FAKE_DEVICES);
	if (rc == CUDA_SUCCESS)
		*value = attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED ||
			 dev != FAKE_NO_VMM;
	return fake_leave(rc);
}

static CUresult fake_granularity(size_t *granularity, const CUmemAllocationProp *prop,
				 CUmemAllocationGranularity_flags option)
{
	CUresult rc = fake_enter(FAKE_GRANULARITY);

	FAKE_MUST(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
	FAKE_MUST(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (rc == CUDA_SUCCESS)
		*granularity = VMEM_GRANULE;
	return fake_leave(rc);
}

static CUresult fake_reserve(CUdeviceptr *start, size_t size, size_t alignment, CUdeviceptr hint,
			     unsigned long long flags)
{
	CUresult rc = fake_enter(FAKE_RESERVE);

	(void)alignment;
	FAKE_MUST(!flags && size % VMEM_GRANULE == 0);
	if (rc == CUDA_SUCCESS && fake.reserve_max && size > fake.reserve_max)
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == CUDA_SUCCESS) {
		FAKE_MUST(fake.nreserved < 16);
		*start = fake.reserve_at ? fake.reserve_at : hint;
		fake.reserved[fake.nreserved] = *start;
		fake.reserved_size[fake.nreserved++] = size;
	}
	return fake_leave(rc);
}

static CUresult fake_address_free(CUdeviceptr start, size_t size)
{
	CUresult rc = fake_enter(FAKE_ADDRESS_FREE);

	FAKE_MUST(fake.nreserved && fake.reserved[fake.nreserved - 1] == start);
	FAKE_MUST(fake.reserved_size[fake.nreserved - 1] == size);
	fake.nreserved--;
	return fake_leave(rc);
}

/* Of device 0, whose contexts the tests of large regions use. A question: it does not fail. */
static CUresult fake_get_info(size_t *free, size_t *total)
{
	pthread_mutex_lock(&fake.lock);
	*total = fake.limit[0] ? fake.limit[0] : SIZE_MAX;
	*free = *total - fake.used[0];
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t size,
			    const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUdevice dev = prop->location.id;
	unsigned int i = 0;
	CUresult rc;

	while (__atomic_load_n(&fake.slow[dev], __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&fake.waits[dev], true, __ATOMIC_RELEASE);
		usleep(100);
	}
	rc = fake_enter(FAKE_CREATE);
	FAKE_MUST(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && !flags);
	FAKE_MUST(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && dev < FAKE_DEVICES);
	FAKE_MUST(size && size % VMEM_GRANULE == 0 && size <= VMEM_PIECE);
	if (rc == CUDA_SUCCESS && fake.limit[dev] && fake.used[dev] + size > fake.limit[dev])
		rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == CUDA_SUCCESS) {
		while (i < FAKE_MAX_MAPS && fake.mem[i].size)
			i++;
		FAKE_MUST(i < FAKE_MAX_MAPS);
		fake.mem[i] = (struct fake_memory){.size = size, .dev = dev, .handle = true};
		fake.used[dev] += size;
		*handle = i + 1;
	}
	return fake_leave(rc);
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
	CUresult rc = fake_enter(FAKE_RELEASE);
	struct fake_memory *m = &fake.mem[handle - 1];

	FAKE_MUST(handle && handle <= FAKE_MAX_MAPS && m->handle);
	if (rc == CUDA_SUCCESS) {
		m->handle = false;
		fake_settle(m);
	}
	return fake_leave(rc);
}

static CUresult fake_map(CUdeviceptr at, size_t size, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult rc = fake_enter(FAKE_MAP);
	bool inside = false;

	FAKE_MUST(!offset && !flags && at % VMEM_GRANULE == 0);
	FAKE_MUST(fake.mem[handle - 1].handle && fake.mem[handle - 1].size == size);
	for (unsigned int i = 0; i < fake.nreserved; i++)
		inside |= at >= fake.reserved[i] &&
			  at + size <= fake.reserved[i] + fake.reserved_size[i];
	FAKE_MUST(inside);
	for (unsigned int i = 0; i < FAKE_MAX_MAPS; i++)
		FAKE_MUST(!fake.mem[i].at || fake.mem[i].at + fake.mem[i].size <= at ||
			  at + size <= fake.mem[i].at);
	if (rc == CUDA_SUCCESS)
		fake.mem[handle - 1].at = at;
	return fake_leave(rc);
}

static CUresult fake_access(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult rc = fake_enter(FAKE_ACCESS);
	size_t seen = 0;

	for (unsigned int i = 0; i < FAKE_MAX_MAPS; i++) {
		struct fake_memory *m = &fake.mem[i];

		if (m->at < at || m->at >= at + size)
			continue;
		FAKE_MUST(m->at + m->size <= at + size);
		seen += m->size;
		for (size_t j = 0; j < count && rc == CUDA_SUCCESS; j++) {
			uint64_t bit = 1UL << desc[j].location.id;

			if (desc[j].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
				m->users |= bit;
			else
				m->users &= ~bit;
		}
	}
	FAKE_MUST(seen == size);
	return fake_leave(rc);
}

static CUresult fake_unmap(CUdeviceptr at, size_t size)
{
	CUresult rc = fake_enter(FAKE_UNMAP);
	size_t seen = 0;

	FAKE_MUST(size);
	for (unsigned int i = 0; i < FAKE_MAX_MAPS; i++) {
		struct fake_memory *m = &fake.mem[i];

		if (m->at < at || m->at >= at + size)
			continue;
		FAKE_MUST(m->at + m->size <= at + size);
		seen += m->size;
		if (rc == CUDA_SUCCESS) {
			m->at = 0;
			fake_settle(m);
		}
	}
	FAKE_MUST(seen == size);
	return fake_leave(rc);
}

/* The devices that may access all of [@at, @at + @size); bits that differ inside are an error. */
static inline uint64_t fake_users(CUdeviceptr at, size_t size)
{
	uint64_t users = 0;
	size_t seen = 0;

	for (unsigned int i = 0; i < FAKE_MAX_MAPS; i++) {
		const struct fake_memory *m = &fake.mem[i];

		if (m->at < at || m->at >= at + size)
			continue;
		FAKE_MUST(!seen || m->users == users);
		users = m->users;
		seen += m->size;
	}
	FAKE_MUST(seen == size);
	return users;
}

static const struct cuda_driver fake_driver = {
	.cuDeviceGetAttribute = fake_attribute,
	.cuMemGetAllocationGranularity = fake_granularity,
	.cuMemAddressReserve = fake_reserve,
	.cuMemAddressFree = fake_address_free,
	.cuMemGetInfo_v2 = fake_get_info,
	.cuMemCreate = fake_create,
	.cuMemRelease = fake_release,
	.cuMemMap = fake_map,
	.cuMemUnmap = fake_unmap,
	.cuMemSetAccess = fake_access,
};

#endif
