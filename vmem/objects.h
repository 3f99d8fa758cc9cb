/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OBJECTS_H
#define CUDAW_OBJECTS_H
/*
 * objects: device memory that the program creates and maps by itself (cuMemCreate(), cuMemMap()).
 *
 * The program gets a handle of ours instead of the driver's. So a pause can release the memory, and
 * a resume can create it again under the same handle, at the same addresses. An object is one
 * allocation; it lives as long as the program has references to its handle, or mappings of it. The
 * driver has one reference for all those of the program, and none once they are released.
 *
 *	object	handle (never used twice), size, properties, references
 *	  mapping	address, size, offset in the object
 *	    access	a part of the mapping, a location, its flags: in the order of the calls
 *
 * An object that others can reach, for example by an exported handle, is left to the driver from
 * then on (objects_leave()): a pause does not move it. Handles that are not ours go to the driver.
 *
 * Locking: one lock guards all tables, and is held across the driver calls that change mappings,
 * since an address belongs to an object exactly while it is mapped. The statistics need no lock.
 */
#include "vmem/vmem.h"

/* True if @handle is one that objects_add() has made, alive or not. */
bool objects_is_ours(CUmemGenericAllocationHandle handle);

/*
 * The driver has made @size bytes under *@handle, with @prop: carry them, and put a handle of ours
 * there. False if they stay the driver's, with *@handle as it was: they are not plain device memory
 * in granules, or there is no host memory for the record.
 */
bool objects_add(CUmemGenericAllocationHandle *handle, size_t size,
		 const CUmemAllocationProp *prop);

/*
 * The driver's handle for @handle, which is valid while the program has a reference. A handle that
 * is not ours is returned as it is. CUDA_ERROR_INVALID_VALUE if the program has released it.
 */
CUresult objects_find(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *driver_s);

/* The driver's calls of these names. Handles and addresses that are not ours go to the driver. */
CUresult objects_release(CUmemGenericAllocationHandle handle);
CUresult objects_map(CUdeviceptr ptr, size_t size, size_t offset,
		     CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult objects_unmap(CUdeviceptr ptr, size_t size);
CUresult objects_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
			    size_t count);

/* One more reference to the object that is mapped at @ptr. CUDA_ERROR_NOT_FOUND: there is none. */
CUresult objects_retain(CUdeviceptr ptr, CUmemGenericAllocationHandle *handle);

/*
 * Leave the object to the driver from now on. Returns its size; 0 if that was done before, or the
 * object is not known.
 */
size_t objects_leave(CUmemGenericAllocationHandle handle);

/* The first object that is mapped in [*@ptr, @end), where *@ptr moves behind it. False: no more. */
bool objects_next(CUdeviceptr *ptr, CUdeviceptr end, CUmemGenericAllocationHandle *handle);

/*
 * For pointer checks: the bytes that are mapped from @ptr on, without a gap. 0: no object is mapped
 * at @ptr. SIZE_MAX: the objects there are followed by memory that is not an object's.
 */
size_t objects_bytes(CUdeviceptr ptr);

/* @function is to be called with the handle of each object that is gone, with no lock held. */
typedef void (*object_gone_fn)(uint64_t handle);
#define OBJECT_GONE(function)                              \
	static const object_gone_fn object_gone_##function \
		__attribute__((section("cudaw_object_gone"), used)) = (function)

#endif
