/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OBJECTS_H
#define CUDAW_OBJECTS_H
/*
 * objects: device memory that the program creates and maps by itself (cuMemCreate(), cuMemMap()).
 *
 * The program gets a handle of ours instead of the driver's. So a pause can release the memory, and
 * a resume can create it again under the same handle, at the same addresses. An object is one
 * allocation; it lives as long as the program has references to its handle, or mappings of it, or
 * anybody has a ticket of it. The driver has one reference for all those of the program, and none once
 * they are released, unless it was exported and a ticket is held.
 *
 *	object	handle (never used twice), size, properties, references
 *	  mapping	address, size, offset in the object
 *	    access	a part of the mapping, a location, its flags: in the order of the calls
 *
 * Other processes under cudaw can have an object by its name (checkpoint/sharing). A process that has
 * imported one does not save its bytes: a pause gives the import back, and a resume asks the exporter
 * for it again. An object that others can reach in another way, for example by a dma-buf, is left to
 * the driver from then on (objects_leave()): a pause does not move it. Handles that are not ours go to
 * the driver.
 *
 * Locking: one lock guards all tables, and is held across the driver calls that change mappings,
 * since an address belongs to an object exactly while it is mapped. The statistics need no lock.
 */
#include "vmem/vmem.h"

#include <sys/types.h>

struct beacon;

/* True if @handle is one that objects_add() has made, alive or not. */
bool objects_is_ours(CUmemGenericAllocationHandle handle);

/*
 * The driver has made @size bytes under *@handle, with @prop: carry them, and put a handle of ours
 * there. False if they stay the driver's, with *@handle as it was: they are not plain device memory
 * in granules, or there is no host memory for the record. The caller has taken them from the quota of the
 * device (common/protocol/quota.h); they are given back with the memory.
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

/*
 * The name of an object that other processes may have: the process that made it, one of the many that
 * may have had its pid, and a number that nobody can guess.
 */
#define OBJECT_KEY 16
struct object_name {
	pid_t pid;
	unsigned char instance[OBJECT_KEY];
	unsigned char key[OBJECT_KEY];
	bool legacy; /* to be imported by a legacy IPC handle */
};

/*
 * Give the object the name @fresh, unless it has one, and put its name into *@name. The driver is
 * asked for an export, which is closed again: its error is returned if it refuses.
 */
CUresult objects_share(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
		       unsigned long long flags, const struct object_name *fresh,
		       struct object_name *name);

/*
 * This process's object with that key, if there is one, lives at least as long as the ticket whose beacon
 * it is. False: there is none, or no host memory to note the ticket.
 */
bool objects_add_ticket(const unsigned char key[OBJECT_KEY], const struct beacon *beacon);

/*
 * Free the objects whose last ticket has been closed since the program released and unmapped them; but
 * none while exports are closed.
 */
void objects_put_kept(void);

/*
 * For another process: a descriptor of the driver for the object of this process with that key, or
 * for the part of an allocation that has it (legacy.h), and its size. The caller closes it.
 * CUDA_ERROR_INVALID_VALUE: there is none; CUDA_ERROR_NOT_READY: a pause has the memory.
 */
CUresult objects_export(const unsigned char key[OBJECT_KEY], int *fd, size_t *size);
bool objects_have_key(const unsigned char key[OBJECT_KEY]);

/* Between these, objects_export() gives nothing. */
void objects_close_exports(void);
void objects_open_exports(void);

/*
 * Import an object by its name: the record is made first, so that it counts while the exporter is
 * asked. objects_import() takes the exporter's descriptor, and the number @build of what it exports;
 * it also brings an import back that a pause has released, with its mappings. objects_import_drop()
 * gives up.
 */
CUresult objects_import_begin(const struct object_name *name, CUmemGenericAllocationHandle *handle);
CUresult objects_import(CUmemGenericAllocationHandle handle, int fd, size_t size, uint64_t build);
void objects_import_drop(CUmemGenericAllocationHandle handle);

/* An import whose exporter has the memory, as far as is known. */
struct object_import {
	CUmemGenericAllocationHandle handle;
	struct object_name name;
	uint64_t build;
	bool away;    /* a pause has released it */
	bool pending; /* objects_import() has not been called */
	bool left;    /* no pause can give it back, as others can reach it otherwise */
};
/* The one after @import, in the order of their handles; the first if its handle is 0. */
bool objects_next_import(struct object_import *import);

/*
 * Give the imports from that process back to the driver; NULL: all. Those that are away already stay so. Returns the
 * first error, after it has tried all.
 */
CUresult objects_release_imports(const unsigned char instance[OBJECT_KEY]);

/* Its exporter does not have it any more: leave it to the driver. */
void objects_import_orphan(CUmemGenericAllocationHandle handle);

/* How many objects with names, and imports, the driver still has, of those that a pause gives back. */
size_t objects_shared_held(void);

/* @function is to be called with the handle of each object that is gone, with no lock held. */
typedef void (*object_gone_fn)(uint64_t handle);
#define OBJECT_GONE(function)                              \
	static const object_gone_fn object_gone_##function \
		__attribute__((section("cudaw_object_gone"), used)) = (function)

#endif
