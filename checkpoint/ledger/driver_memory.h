/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DRIVER_MEMORY_H
#define CUDAW_DRIVER_MEMORY_H
/*
 * GPU memory that the program got on ways that vmem does not manage: counted, by kind, so that it
 * can be shown. It is not moved by us; the driver's checkpoint takes it off the GPU at a pause, but
 * for the kinds that it cannot take (unsupported.h). Those that are no memory of their own, such as
 * what is exported, have no bytes here.
 *
 * Thread-safe; a table in host memory, no CUDA call. What ends with its context, but for textures,
 * stays counted until its handle is used again.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRIVER_MEMORY_MAP(X)                                                         \
	X(DEVICE, "cuMemAlloc left to the driver (CUDAW_ADDRESSING, or no mapping)") \
	X(POOL, "cuMemAllocAsync")                                                   \
	X(MANAGED, "cuMemAllocManaged")                                              \
	X(ARRAY, "arrays and mipmaps")                                               \
	X(VMM, "cuMemCreate")                                                        \
	X(GRAPH, "allocation nodes of graphs, by device")                            \
	X(EXTERNAL, "cuImportExternalMemory")                                        \
	X(MULTICAST, "cuMulticastCreate: no memory")                                 \
	X(IPC_EXPORT, "cuIpcGetMemHandle: no memory of its own")                     \
	X(IPC_IMPORT, "cuIpcOpenMemHandle")                                          \
	X(VMM_EXPORT, "cuMemExportToShareableHandle: no memory of its own")          \
	X(VMM_IMPORT, "cuMemImportFromShareableHandle")                              \
	X(POOL_EXPORT, "cuMemPoolExportToShareableHandle: no memory of its own")     \
	X(POOL_IMPORT, "cuMemPoolImportFromShareableHandle: no memory of its own")   \
	X(FIXED_TEXTURE, "textures with real addresses inside: no memory")

#define DRIVER_MEMORY_ENUM(name, text) DRIVER_MEMORY_##name,
enum driver_memory_kind { DRIVER_MEMORY_MAP(DRIVER_MEMORY_ENUM) DRIVER_MEMORY_KINDS };
#undef DRIVER_MEMORY_ENUM

/*
 * Note @size bytes under @handle: a device pointer, an array or a memory handle. What is noted
 * under it already is gone: its end was not seen.
 */
void driver_memory_add(enum driver_memory_kind kind, uint64_t handle, size_t size);

/* Note a texture, which ends with @ctx. */
void driver_memory_add_texture(uint64_t handle, CUcontext ctx);
void driver_memory_release_context(CUcontext ctx);

/* Forget @handle; nothing happens where it is unknown. */
void driver_memory_remove(enum driver_memory_kind kind, uint64_t handle);

/*
 * The same around the call that ends it, which may fail: it stays noted until then, and what is
 * noted under @handle in between is another one.
 */
void driver_memory_ending(enum driver_memory_kind kind, uint64_t handle);
void driver_memory_ended(enum driver_memory_kind kind, uint64_t handle, bool gone);

/* Bytes of all kinds. */
size_t driver_memory_total(void);

/* How many of one kind there are. */
size_t driver_memory_count(enum driver_memory_kind kind);

#endif
