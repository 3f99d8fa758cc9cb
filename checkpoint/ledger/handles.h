/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HANDLES_H
#define CUDAW_HANDLES_H
/*
 * The program's own memory handles (CUmemGenericAllocationHandle), which it created or imported,
 * and their mappings. The memory behind a handle lives until all references are released and all
 * mappings are gone. Until then it has an entry in driver_memory.h. Programs often release a handle
 * as soon as it is mapped.
 *
 * Thread-safe; a table in host memory, no CUDA call. Unknown handles are ignored.
 */
#include "checkpoint/ledger/driver_memory.h"

/* A new handle with one reference. @size: 0 if it is not known before it is mapped. */
void handles_add(uint64_t handle, enum driver_memory_kind kind, size_t size);

/* The same of memory that the caller has taken from the quota of @dev: driver_memory_add_taken(). */
void handles_add_taken(uint64_t handle, enum driver_memory_kind kind, size_t size, CUdevice dev);

/* One more reference, or one less. */
void handles_retain(uint64_t handle);
void handles_release(uint64_t handle);

/*
 * The same as handles_release(), around the driver's call. Meanwhile the driver may give the handle to other memory,
 * which then keeps its reference. @released: the call has succeeded.
 */
void handles_releasing(uint64_t handle);
void handles_released(uint64_t handle, bool released);

/* The handle's memory is exported to another process: recorded as @kind, VMM_EXPORT or DMABUF_LEFT, while it lives. */
void handles_export(uint64_t handle, enum driver_memory_kind kind);

/*
 * The memory mapped in the @size bytes from @ptr is exported as a dma-buf: recorded as DMABUF_LEFT
 * while it lives. False: no known handle is mapped there.
 */
bool handles_export_dmabuf(uint64_t ptr, size_t size);

/* True if a known handle is mapped in the range. */
bool handles_are_mapped(uint64_t ptr, size_t size);

/* @size bytes at @ptr were mapped; or all mappings in the @size bytes from @ptr were unmapped. */
void handles_map(uint64_t handle, uint64_t ptr, size_t size);
void handles_unmap(uint64_t ptr, size_t size);

#endif
