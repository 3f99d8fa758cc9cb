/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PLACES_H
#define CUDAW_PLACES_H
/*
 * Where real memory is in vmem's address space: the reverse of translate(), for translate.c. An
 * array in the order of the real addresses. Thread-safe; no CUDA call. Not for launches: what is
 * looked up here was read back from the driver.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* @size bytes at @real are those at @start. 0 or -ENOMEM. */
int places_add(CUdeviceptr real, CUdeviceptr start, size_t size);

/* What was at @real is gone; nothing happens where there was nothing. */
void places_remove(CUdeviceptr real);

/*
 * The address for @real in *@ptr; false where nothing of ours is there. The end of a place is part
 * of it, unless another begins there.
 */
bool places_find(CUdeviceptr real, CUdeviceptr *ptr);

/* True where one place begins at @real and another ends there; *@end is the latter's end. */
bool places_end_at(CUdeviceptr real, CUdeviceptr *end);

#endif
