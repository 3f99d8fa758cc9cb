/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SYMBOLS_H
#define CUDAW_SYMBOLS_H
/*
 * symbols: the variables of the program's modules (__device__, __constant__), as far as it asked
 * where they are, and the pointers that it copied into them. With translated addressing these are
 * real ones (translate.h), and are brought up to date after memory has come back elsewhere. cuFFT
 * hands its tables to its kernels so.
 *
 * A word that something else has written since (a kernel, a copy) is left as it is.
 *
 * Thread-safe, by one mutex. Only symbols_renew() holds it across driver calls, while the gate is
 * closed (docs/architecture.md, "Locks across driver calls").
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_driver;

/* @owner, a module or library of @ctx, has a variable of @size bytes at @ptr. */
void symbols_add(const void *owner, CUcontext ctx, CUdeviceptr ptr, size_t size);

/*
 * @owner was unloaded: its variables are gone, but not those that symbols_add() told after @asked,
 * the symbols_time() before the unload: another may have its handle by then.
 */
void symbols_remove(const void *owner, unsigned long asked);
unsigned long symbols_time(void);

/* Whether [@ptr, @ptr + @size) lies in a variable. */
bool symbols_have(CUdeviceptr ptr, size_t size);

/*
 * The @size bytes at @data, a copy, are about to be copied to @ptr, in a variable: put real
 * addresses in place of virtual ones, in words that are aligned there, and remember where.
 */
void symbols_rewrite(CUdeviceptr ptr, void *data, size_t size);

/*
 * Memory came back: give the words that were rewritten the addresses of now. A variable that
 * cannot be read is forgotten, as one of a context that was reset; an error is of writing one.
 * Leaves no context current.
 */
CUresult symbols_renew(const struct cuda_driver *drv);

#endif
