/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DRIVER_MEMORY_H
#define CUDAW_DRIVER_MEMORY_H
/*
 * GPU memory that is left to the driver, because the program got it by calls that vmem does not
 * serve. It is counted by kind, for `cudaw ps`. cudaw does not move it; at a pause the driver's
 * checkpoint takes it off the GPU, except the kinds that it does not support (unsupported.h). Kinds
 * that are not memory of their own, e.g. exports, have no bytes here.
 *
 * Thread-safe; a table in host memory, no CUDA call. An entry ends with its context, if that is known;
 * otherwise it stays counted until its handle is used again.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vmem_info;

#define DRIVER_MEMORY_MAP(X)                                                          \
	X(DEVICE, "cuMemAlloc left to the driver (CUDAW_ADDRESSING, or no mapping)")  \
	X(POOL, "cuMemAllocAsync")                                                    \
	X(MANAGED, "cuMemAllocManaged")                                               \
	X(ARRAY, "arrays and mipmaps")                                                \
	X(VMM, "cuMemCreate")                                                         \
	X(VMM_HOST, "cuMemCreate in host memory: no GPU memory")                      \
	X(POOL_HOST, "cuMemAllocAsync of a pool in host memory: no GPU memory")       \
	X(GRAPH, "allocation nodes of graphs, by device")                             \
	X(EXTERNAL, "cuImportExternalMemory")                                         \
	X(MULTICAST, "cuMulticastCreate: no memory")                                  \
	X(IPC_EXPORT, "cuIpcGetMemHandle: no memory of its own")                      \
	X(IPC_IMPORT, "cuIpcOpenMemHandle")                                           \
	X(VMM_EXPORT, "cuMemExportToShareableHandle: no memory of its own")           \
	X(VMM_IMPORT, "cuMemImportFromShareableHandle")                               \
	X(DMABUF, "cuMemGetHandleForAddressRange: carried memory that others use")    \
	X(DMABUF_LEFT, "the same of memory left to the driver: no memory of its own") \
	X(POOL_EXPORT, "cuMemPoolExportToShareableHandle: no memory of its own")      \
	X(POOL_IMPORT, "cuMemPoolImportFromShareableHandle: no memory of its own")    \
	X(FIXED_TEXTURE, "textures with real addresses inside: no memory")

#define DRIVER_MEMORY_ENUM(name, text) DRIVER_MEMORY_##name,
enum driver_memory_kind { DRIVER_MEMORY_MAP(DRIVER_MEMORY_ENUM) DRIVER_MEMORY_KINDS };
#undef DRIVER_MEMORY_ENUM

/*
 * Record @size bytes under @handle: a device pointer, an array, or an object of handles.h. This replaces an
 * earlier entry of the handle, whose end was not seen.
 */
void driver_memory_add(enum driver_memory_kind kind, uint64_t handle, size_t size);

/*
 * The same. The caller has taken the bytes from the quota of @dev (common/protocol/quota.h; -1: of none): they
 * are given back with the entry's end, or at once if there is no host memory for an entry. It ends with @ctx; NULL: with
 * no context.
 */
void driver_memory_add_taken(enum driver_memory_kind kind, uint64_t handle, size_t size,
			     CUdevice dev, CUcontext ctx);

/*
 * Record that memory of another process was opened at @ptr in @ctx, as IPC_IMPORT. Each open at @ptr takes a
 * driver_memory_remove() of its own.
 */
void driver_memory_opened(uint64_t ptr, size_t size, CUcontext ctx);

/* Record a texture, which ends with @ctx. */
void driver_memory_add_texture(uint64_t handle, CUcontext ctx);
void driver_memory_release_context(CUcontext ctx);

/*
 * Record an allocation of vmem that others use by a dma-buf. It counts until the allocation is
 * freed: nobody sees when the last of those who were given the buffer lets go of it.
 */
void driver_memory_add_dmabuf(const struct vmem_info *info);

/* Forget @handle. Does nothing if it is unknown. */
void driver_memory_remove(enum driver_memory_kind kind, uint64_t handle);

/*
 * The same around the call that ends it, which may fail: the entry stays until then. An entry that
 * is recorded under @handle in between is a new one, and stays.
 */
void driver_memory_ending(enum driver_memory_kind kind, uint64_t handle);
void driver_memory_ended(enum driver_memory_kind kind, uint64_t handle, bool gone);

/* Bytes of all kinds. */
size_t driver_memory_total(void);

/* The number of entries of one kind. */
size_t driver_memory_count(enum driver_memory_kind kind);

#endif
