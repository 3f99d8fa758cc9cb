/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HANDLES_H
#define CUDAW_HANDLES_H
/*
 * The program's own memory handles (CUmemGenericAllocationHandle): what it created or imported, and
 * where that is mapped. The memory behind a handle lives until all references are released and all
 * mappings are gone, and until then it is noted in driver_memory.h; programs often release the
 * handle as soon as it is mapped.
 *
 * Thread-safe; a table in host memory, no CUDA call. Handles that are not known are not looked at.
 */
#include "checkpoint/ledger/driver_memory.h"

/* A new handle with one reference. @size: 0 where it is not known before it is mapped. */
void handles_add(uint64_t handle, enum driver_memory_kind kind, size_t size);

/* One more reference, or one less. */
void handles_retain(uint64_t handle);
void handles_release(uint64_t handle);

/* The handle's memory left the process as well: noted as VMM_EXPORT for as long as it lives. */
void handles_export(uint64_t handle);

/* @size bytes at @ptr were mapped; or all mappings that make up @size bytes from @ptr unmapped. */
void handles_map(uint64_t handle, uint64_t ptr, size_t size);
void handles_unmap(uint64_t ptr, size_t size);

#endif
