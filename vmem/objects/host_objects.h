/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_OBJECTS_H
#define CUDAW_HOST_OBJECTS_H
/*
 * host_objects: host memory that the program creates and maps by itself (cuMemCreate() with HOST_NUMA), as NCCL's
 * transport SHM does. The driver's checkpoint takes a process that has such memory of the driver's, and its restore
 * fails for good. So the memory is in files of ours (host_file.h), and the driver knows the mappings that a device may
 * access as registered host memory, which its checkpoint carries. A pause has nothing to do: the memory stays where it
 * is, and other processes may go on to use it.
 *
 *	object	handle (never used twice), file, properties, references
 *	  mapping	address, size; the access of each device and of the host; where it is registered
 *	reservation	of addresses, by cuMemAddressReserve()
 *
 * Natively such memory belongs to no context, but a registration ends with the context that made it. Then it is made
 * again in another one, or waits for one (host_objects_register()).
 *
 * Nothing is mapped outside a reservation of the program, or over another mapping of ours; the caller looks for
 * mappings of the driver's.
 *
 * Locking: one lock guards all tables, and is not held across driver calls. The functions at the end need another
 * lock of their caller's, so that a registration does not end, or a mapping go, while one of them calls the driver.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* True if @handle is one that host_objects_add() has made, alive or not. */
bool host_objects_is_ours(CUmemGenericAllocationHandle handle);

/*
 * A new object in the file @fd, which is taken over: closed, if there is no host memory for the record. @granule: of
 * its mappings. @shared: other processes have it.
 */
CUresult host_objects_add(int fd, size_t size, size_t granule, const CUmemAllocationProp *prop,
			  bool shared, CUmemGenericAllocationHandle *handle);

/* The driver's calls of these names. CUDA_ERROR_INVALID_VALUE for a handle that was released. */
CUresult host_objects_release(CUmemGenericAllocationHandle handle);
CUresult host_objects_map(CUdeviceptr ptr, size_t size, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult host_objects_get_properties(CUmemAllocationProp *prop,
				     CUmemGenericAllocationHandle handle);
CUresult host_objects_export(int *fd, CUmemGenericAllocationHandle handle,
			     CUmemAllocationHandleType type, unsigned long long flags);
CUresult host_objects_get_access(unsigned long long *flags, const CUmemLocation *location,
				 CUdeviceptr ptr);

/* A new object in a copy of the descriptor @fd. CUDA_ERROR_INVALID_VALUE: that is not one of our files. */
CUresult host_objects_import(int fd, size_t granule, CUmemGenericAllocationHandle *handle);

/* One more reference to the object that is mapped at @ptr. CUDA_ERROR_NOT_FOUND: there is none. */
CUresult host_objects_retain(CUdeviceptr ptr, CUmemGenericAllocationHandle *handle);

/* True if one of our mappings is in the range; if one is in it in part only. */
bool host_objects_overlap(CUdeviceptr ptr, size_t size);
bool host_objects_split(CUdeviceptr ptr, size_t size);

/*
 * Moves *@ptr to the first address from there on where nothing of ours is mapped. Returns the bytes from there to the
 * next mapping of ours, or to @end. 0: there are none.
 */
size_t host_objects_gap(CUdeviceptr *ptr, CUdeviceptr end);

/* True if mappings wait for a context. */
bool host_objects_wait(void);

/* The mapping that @ptr is in. False: none. */
struct host_objects_info {
	CUdeviceptr start;
	size_t size;
	CUmemAllocationHandleType types;
};
bool host_objects_lookup(CUdeviceptr ptr, struct host_objects_info *info);

/* True if other processes may have memory of ours, or have given it. */
bool host_objects_are_shared(void);

/*
 * The program has reserved addresses; false: no memory to note it. host_objects_unreserve() forgets that before the
 * addresses are freed; *@known: it was noted. False: memory of ours is mapped there.
 */
bool host_objects_reserve(CUdeviceptr ptr, size_t size);
bool host_objects_unreserve(CUdeviceptr ptr, size_t size, bool *known);

/* For callers with the lock under which contexts begin and end. */

/* Unmap all mappings in the range, each of which is in it as a whole. */
CUresult host_objects_unmap(CUdeviceptr ptr, size_t size);

/*
 * Give the mappings in the range access, which the host has from then on, and register them in @ctx if a device has
 * it. @ctx NULL: they wait for a context.
 */
CUresult host_objects_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				 size_t count, CUcontext ctx);

/* @ctx has ended, and its registrations with it. */
void host_objects_context_gone(CUcontext ctx);

/* Register in @ctx what waits for a context. */
void host_objects_register(CUcontext ctx);

#endif
