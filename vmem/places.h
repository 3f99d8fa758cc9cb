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

struct place {
	CUdeviceptr real, start;
	size_t size;
};

/*
 * The places that @real is in, or is before by no more than @reach, or behind by less; @reach must
 * not be more than the size of any. Returns how many they are.
 */
#define PLACES_NEAR 3
size_t places_near(CUdeviceptr real, size_t reach, struct place *near);

#endif
