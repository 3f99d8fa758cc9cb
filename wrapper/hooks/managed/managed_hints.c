/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice, prefetches, discards and attachments for managed memory that is served from host memory:
 * the arguments are checked as the driver checks them, and the advice is remembered. Nothing moves,
 * so a stream gets no work.
 */
#include "wrapper/current.h"
#include "wrapper/hooks/managed/managed.h"
#include "checkpoint/ledger/captures.h"
#include "wrapper/real.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool ours(CUdeviceptr ptr)
{
	return managed_lookup(ptr, NULL);
}

/*
 * The operation would be put into @stream, and no capture takes it. To query a stream that captures
 * fails as well, and breaks the capture.
 */
static CUresult check_stream(CUstream stream)
{
	CUstreamCaptureStatus status;
	CUresult result = current_error();

	if (!result)
		result = real.cuStreamIsCapturing(stream, &status);
	if (!result && status != CU_STREAM_CAPTURE_STATUS_NONE)
		result = real.cuStreamQuery(stream);
	/* The capture has ended meanwhile. */
	return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

/*
 * Captures that forbid advice to this thread forbid queries of events, too: both fail, and break the
 * capture.
 */
static CUresult check_captures(void)
{
	CUevent event;
	CUresult result;

	if (!captures_open(driver_table()) || real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
		return CUDA_SUCCESS;
	result = real.cuEventQuery(event);
	real.cuEventDestroy_v2(event);
	return result;
}

static CUresult check_device(int dev)
{
	int concurrent = 0;

	if (dev < 0 || dev >= MANAGED_DEVICES ||
	    real.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
				      dev) ||
	    !concurrent)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

static CUresult check_node(int node)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
	return access(path, F_OK) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Check @from and bring it into the form in which it is remembered. */
static CUresult take_location(CUmemLocation from, CUmemLocation *to)
{
	unsigned int node = 0;
	CUresult result;

	switch (from.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		result = check_device(from.id);
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
		from.id = CU_DEVICE_CPU;
		result = CUDA_SUCCESS;
		break;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		result = check_node(from.id);
		break;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		getcpu(NULL, &node);
		from = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = (int)node};
		result = CUDA_SUCCESS;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	if (!result)
		*to = from;
	return result;
}

/* The location that the calls before CUDA 12.2 name by a device. */
static CUmemLocation location_of(CUdevice dev)
{
	return dev == CU_DEVICE_CPU
		       ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
		       : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
}

struct advice {
	CUmem_advise advice;
	CUmemLocation location;
};

static uint64_t accessor(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_HOST ? MANAGED_BY_HOST
							   : MANAGED_BY_DEVICE(location->id);
}

static void advise(struct managed_hints *hints, const void *arg)
{
	const struct advice *a = arg;

	switch (a->advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		hints->read_mostly = a->advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		hints->preferred = a->location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		hints->preferred = (CUmemLocation){0};
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		hints->accessed_by |= accessor(&a->location);
		break;
	default: /* CU_MEM_ADVISE_UNSET_ACCESSED_BY */
		hints->accessed_by &= ~accessor(&a->location);
	}
}

/* Advice that ignores the location refuses one without a type, too [H200]. */
static CUresult take_advice(CUmem_advise advice, CUmemLocation location, struct advice *to)
{
	bool by = advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
		  advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;

	if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY ||
	    location.type == CU_MEM_LOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	*to = (struct advice){.advice = advice};
	if (by && location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
	    location.type != CU_MEM_LOCATION_TYPE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (!by && advice != CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
		return CUDA_SUCCESS;
	return take_location(location, &to->location) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult managed_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
				CUmemLocation location)
{
	struct advice taken;
	CUresult result;

	if (!ours(devPtr))
		return real.cuMemAdvise_v2(devPtr, count, advice, location);
	result = current_error();
	if (!result)
		result = check_captures();
	if (!result)
		result = take_advice(advice, location, &taken);
	return result ? result : managed_change(devPtr, count, advise, &taken);
}

CUresult managed_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	if (!ours(devPtr))
		return real.cuMemAdvise(devPtr, count, advice, device);
	return managed_cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

static void prefetch_page(struct managed_hints *hints, const void *arg)
{
	hints->prefetched = *(const CUmemLocation *)arg;
}

static CUresult prefetch(CUdeviceptr ptr, size_t count, CUmemLocation location, unsigned int flags,
			 CUstream stream)
{
	CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : check_stream(stream);

	if (!result)
		result = take_location(location, &location);
	return result ? result : managed_change(ptr, count, prefetch_page, &location);
}

CUresult managed_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
				    CUstream hStream)
{
	return ours(devPtr) ? prefetch(devPtr, count, location_of(dstDevice), 0, hStream)
			    : real.cuMemPrefetchAsync(devPtr, count, dstDevice, hStream);
}

CUresult managed_cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
					 CUstream hStream)
{
	return ours(devPtr)
		       ? prefetch(devPtr, count, location_of(dstDevice), 0, per_thread(hStream))
		       : real.cuMemPrefetchAsync_ptsz(devPtr, count, dstDevice, hStream);
}

CUresult managed_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
				       unsigned int flags, CUstream hStream)
{
	return ours(devPtr) ? prefetch(devPtr, count, location, flags, hStream)
			    : real.cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
}

CUresult managed_cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count,
					    CUmemLocation location, unsigned int flags,
					    CUstream hStream)
{
	return ours(devPtr)
		       ? prefetch(devPtr, count, location, flags, per_thread(hStream))
		       : real.cuMemPrefetchAsync_v2_ptsz(devPtr, count, location, flags, hStream);
}

/* A batch of prefetches or discards; without locations it only discards. */
struct batch {
	CUdeviceptr *ptrs;
	size_t *sizes, count;
	CUmemLocation *locations;
	size_t *indexes, nlocations;
	unsigned long long flags;
	CUstream stream;
	/* The real call, for memory that the driver has. */
	CUresult (*prefetch)(CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t,
			     unsigned long long, CUstream);
	CUresult (*discard)(CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream);
};

static bool any_ours(const CUdeviceptr *ptrs, size_t count)
{
	for (size_t i = 0; ptrs && i < count; i++)
		if (ours(ptrs[i]))
			return true;
	return false;
}

/* The location for operation @i. */
static CUmemLocation *batch_location(const struct batch *b, size_t i)
{
	size_t k = 0;

	while (k + 1 < b->nlocations && b->indexes[k + 1] <= i)
		k++;
	return &b->locations[k];
}

static CUresult check_locations(const struct batch *b)
{
	CUresult result = CUDA_SUCCESS;
	CUmemLocation taken;

	if (!b->locations || !b->indexes || !b->nlocations || b->nlocations > b->count ||
	    b->indexes[0])
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t k = 0; k < b->nlocations && !result; k++) {
		if (b->indexes[k] >= b->count || (k && b->indexes[k] <= b->indexes[k - 1]))
			return CUDA_ERROR_INVALID_VALUE;
		result = take_location(b->locations[k], &taken);
	}
	return result;
}

static CUresult check_batch(const struct batch *b)
{
	CUresult result = CUDA_SUCCESS;

	if (!b->sizes || b->flags || !b->stream || b->stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	if (b->prefetch)
		result = check_locations(b);
	for (size_t i = 0; i < b->count && !result; i++)
		if (ours(b->ptrs[i]) && !managed_covers(b->ptrs[i], b->sizes[i]))
			result = CUDA_ERROR_INVALID_VALUE;
	return result ? result : check_stream(b->stream);
}

/* Operation @i, on memory that the driver has. */
static CUresult leave_to_driver(const struct batch *b, size_t i)
{
	size_t first = 0;

	return b->prefetch ? b->prefetch(&b->ptrs[i], &b->sizes[i], 1, batch_location(b, i), &first,
					 1, b->flags, b->stream)
			   : b->discard(&b->ptrs[i], &b->sizes[i], 1, b->flags, b->stream);
}

/* What is discarded may have any value: also the one that it had. */
static CUresult run_batch(const struct batch *b)
{
	CUresult result = check_batch(b);
	CUmemLocation location;

	for (size_t i = 0; i < b->count && !result; i++) {
		if (!ours(b->ptrs[i])) {
			result = leave_to_driver(b, i);
		} else if (b->prefetch) {
			result = take_location(*batch_location(b, i), &location);
			if (!result)
				result = managed_change(b->ptrs[i], b->sizes[i], prefetch_page,
							&location);
		}
	}
	return result;
}

#define PREFETCH_BATCH(name, hstream)                                                          \
	CUresult managed_##name(CUdeviceptr *dptrs, size_t *sizes, size_t count,               \
				CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,          \
				size_t numPrefetchLocs, unsigned long long flags,              \
				CUstream hStream)                                              \
	{                                                                                      \
		const struct batch batch = {.ptrs = dptrs,                                     \
					    .sizes = sizes,                                    \
					    .count = count,                                    \
					    .locations = prefetchLocs,                         \
					    .indexes = prefetchLocIdxs,                        \
					    .nlocations = numPrefetchLocs,                     \
					    .flags = flags,                                    \
					    .stream = hstream,                                 \
					    .prefetch = real.name};                            \
                                                                                               \
		return any_ours(dptrs, count)                                                  \
			       ? run_batch(&batch)                                             \
			       : real.name(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, \
					   numPrefetchLocs, flags, hStream);                   \
	}
PREFETCH_BATCH(cuMemPrefetchBatchAsync, hStream)
PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz, per_thread(hStream))
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync, hStream)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, per_thread(hStream))

#define DISCARD_BATCH(name, hstream)                                                            \
	CUresult managed_##name(CUdeviceptr *dptrs, size_t *sizes, size_t count,                \
				unsigned long long flags, CUstream hStream)                     \
	{                                                                                       \
		const struct batch batch = {.ptrs = dptrs,                                      \
					    .sizes = sizes,                                     \
					    .count = count,                                     \
					    .flags = flags,                                     \
					    .stream = hstream,                                  \
					    .discard = real.name};                              \
                                                                                                \
		return any_ours(dptrs, count) ? run_batch(&batch)                               \
					      : real.name(dptrs, sizes, count, flags, hStream); \
	}
DISCARD_BATCH(cuMemDiscardBatchAsync, hStream)
DISCARD_BATCH(cuMemDiscardBatchAsync_ptsz, per_thread(hStream))

static int id_of(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : location->id;
}

/* A location as the calls before CUDA 12.2 name it. */
static int device_of(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location->id;
	case CU_MEM_LOCATION_TYPE_HOST:
		return CU_DEVICE_CPU;
	default:
		return CU_DEVICE_INVALID;
	}
}

static void list_accessors(uint64_t accessed_by, int *devices, size_t room)
{
	size_t n = 0;

	for (int dev = 0; dev < MANAGED_DEVICES; dev++)
		if (n < room && accessed_by & MANAGED_BY_DEVICE(dev))
			devices[n++] = dev;
	if (n < room && accessed_by & MANAGED_BY_HOST)
		devices[n++] = CU_DEVICE_CPU;
	while (n < room)
		devices[n++] = CU_DEVICE_INVALID;
}

/* False: there is no such attribute of this size. */
static bool check_attribute(const void *data, size_t size, CUmem_range_attribute attribute)
{
	if (!data || !size || size % sizeof(int))
		return false;
	return attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ||
	       (attribute >= CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY &&
		attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID &&
		size == sizeof(int));
}

static void range_attribute(int *data, size_t size, CUmem_range_attribute attribute,
			    const struct managed_hints *hints)
{
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*data = hints->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*data = device_of(&hints->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		list_accessors(hints->accessed_by, data, size / sizeof(*data));
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*data = device_of(&hints->prefetched);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*data = (int)hints->preferred.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*data = id_of(&hints->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*data = (int)hints->prefetched.type;
		break;
	default: /* CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID */
		*data = id_of(&hints->prefetched);
	}
}

CUresult managed_cuMemRangeGetAttributes(void **data, size_t *dataSizes,
					 CUmem_range_attribute *attributes, size_t numAttributes,
					 CUdeviceptr devPtr, size_t count)
{
	struct managed_hints hints;
	CUresult result;

	if (!ours(devPtr))
		return real.cuMemRangeGetAttributes(data, dataSizes, attributes, numAttributes,
						    devPtr, count);
	if (!data || !dataSizes || !attributes || !numAttributes)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numAttributes; i++)
		if (!check_attribute(data[i], dataSizes[i], attributes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	result = current_error();
	if (!result)
		result = managed_common(devPtr, count, &hints);
	for (size_t i = 0; i < numAttributes && !result; i++)
		range_attribute(data[i], dataSizes[i], attributes[i], &hints);
	return result;
}

CUresult managed_cuMemRangeGetAttribute(void *data, size_t dataSize,
					CUmem_range_attribute attribute, CUdeviceptr devPtr,
					size_t count)
{
	if (!ours(devPtr))
		return real.cuMemRangeGetAttribute(data, dataSize, attribute, devPtr, count);
	return managed_cuMemRangeGetAttributes(&data, &dataSize, &attribute, 1, devPtr, count);
}

/* Any stream and the host may use the memory at any time: an attachment changes nothing. */
static CUresult attach(CUstream stream, bool null_stream, CUdeviceptr ptr, size_t length,
		       unsigned int flags)
{
	struct managed_info info;

	if (!managed_lookup(ptr, &info) || info.start != ptr || (length && length != info.size) ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
	     (flags != CU_MEM_ATTACH_SINGLE || null_stream)))
		return CUDA_ERROR_INVALID_VALUE;
	return check_stream(stream);
}

CUresult managed_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
					unsigned int flags)
{
	return ours(dptr) ? attach(hStream, !hStream || hStream == CU_STREAM_LEGACY, dptr, length,
				   flags)
			  : real.cuStreamAttachMemAsync(hStream, dptr, length, flags);
}

CUresult managed_cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length,
					     unsigned int flags)
{
	return ours(dptr) ? attach(per_thread(hStream), hStream == CU_STREAM_LEGACY, dptr, length,
				   flags)
			  : real.cuStreamAttachMemAsync_ptsz(hStream, dptr, length, flags);
}
