/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PLACES_H
#define CUDAW_PLACES_H
/*
 * Which address of vmem a real address belongs to: the reverse of translate(), for translate.c. An
 * array sorted by real address. Thread-safe; makes no CUDA call. Launches do not use it: it serves
 * addresses that were read back from the driver.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Record that the @size bytes at @real back those at @start. 0 or -ENOMEM. */
int places_add(CUdeviceptr real, CUdeviceptr start, size_t size);

/* Forget that @real backs @start. By then it may back other memory, too. */
void places_remove(CUdeviceptr real, CUdeviceptr start);

struct place {
	CUdeviceptr real, start;
	size_t size;
};

/*
 * Find the places that contain @real, that begin at most @reach after it, or that end less than
 * @reach before it. No place may be smaller than @reach. Returns their number.
 */
#define PLACES_NEAR 3
size_t places_near(CUdeviceptr real, size_t reach, struct place *near);

#endif
