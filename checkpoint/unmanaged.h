/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNMANAGED_H
#define CUDAW_UNMANAGED_H
/*
 * GPU memory that the program got on ways that vmem does not manage: counted, by kind, so that it
 * can be shown. It is not moved by us; the driver's checkpoint takes it off the GPU at a pause.
 * Thread-safe; a table in host memory, no CUDA call.
 */
#include <stddef.h>
#include <stdint.h>

#define UNMANAGED_MAP(X)                                                             \
	X(DEVICE, "cuMemAlloc left to the driver (CUDAW_ADDRESSING, or no mapping)") \
	X(POOL, "cuMemAllocAsync")                                                   \
	X(MANAGED, "cuMemAllocManaged")                                              \
	X(ARRAY, "arrays and mipmaps")                                               \
	X(VMM, "cuMemCreate")

#define UNMANAGED_ENUM(name, text) UNMANAGED_##name,
enum unmanaged_kind { UNMANAGED_MAP(UNMANAGED_ENUM) UNMANAGED_KINDS };
#undef UNMANAGED_ENUM

/* Note @size bytes under @handle: a device pointer, an array or a memory handle. */
void unmanaged_add(enum unmanaged_kind kind, uint64_t handle, size_t size);

/* Forget @handle; nothing happens where it is unknown. */
void unmanaged_remove(enum unmanaged_kind kind, uint64_t handle);

/* Bytes of all kinds. */
size_t unmanaged_total(void);

#endif
