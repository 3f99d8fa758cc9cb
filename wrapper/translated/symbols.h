/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_SYMBOLS_H
#define CUDAW_WRAPPER_SYMBOLS_H
/*
 * symbols: the variables of the program's modules (__device__, __constant__) whose addresses it
 * asked for, and the pointers that it copied into them. With translated addressing the copied
 * pointers are real ones (translate.h), and are updated after memory has come back elsewhere. cuFFT
 * passes its tables to its kernels in this way.
 *
 * A word that a kernel or a copy has overwritten since is left as it is.
 *
 * Thread-safe, by one mutex. Only symbols_renew() holds it across driver calls, while the gate is
 * closed (docs/internals/threads.md, "Locks across driver calls").
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_driver;

/* @owner, a module or library of @ctx, has a variable of @size bytes at @ptr. */
void symbols_add(const void *owner, CUcontext ctx, CUdeviceptr ptr, size_t size);

/*
 * @owner was unloaded: forget its variables, except those that were added after @until, the
 * symbols_time() before the unload. These belong to a new owner with the same handle.
 */
void symbols_remove(const void *owner, unsigned long until);
unsigned long symbols_time(void);

/* True if [@ptr, @ptr + @size) lies in a variable. */
bool symbols_have(CUdeviceptr ptr, size_t size);

/*
 * The @size bytes at @data, a copy, are about to be copied to @ptr, in a variable: put real
 * addresses in place of virtual ones, in words that are aligned there, and remember their places.
 */
void symbols_rewrite(CUdeviceptr ptr, void *data, size_t size);

/*
 * Memory came back: give the words that were rewritten their current addresses. A variable that
 * cannot be read, as in a context that was reset, is forgotten. Returns the error of a write.
 * Leaves no context current.
 */
CUresult symbols_renew(const struct cuda_driver *drv);

#endif
