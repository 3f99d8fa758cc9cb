/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_TENSOR_MAPS_H
#define CUDAW_WRAPPER_TENSOR_MAPS_H
/*
 * tensor_maps: the tensor maps (TMA descriptors) of the program, with translated addressing. One
 * has an address inside, in a form of the hardware's, and the program keeps it where it likes: it
 * is known by what it looks like. After its memory has come back elsewhere, kernels and nodes of
 * graphs are given another one in its place. The last TENSOR_MAPS_MAX are known, and only those of
 * managed memory; of two that look the same it is the one that was encoded last.
 *
 * Thread-safe; a launch takes no lock for what looks like none of them. No call into the driver
 * under the lock.
 */
#include <cuda.h>
#include <stdbool.h>

#define TENSOR_MAPS_MAX 16384

/* @map was encoded, or changed, for the virtual address @ptr. */
void tensor_maps_add(const CUtensorMap *map, CUdeviceptr ptr);

/* Where a map of the program's is at @value, put there what it is now. */
void tensor_maps_rewrite(char *value);

/* The reverse: true where there is one at @value, for the memory as it lies now. */
bool tensor_maps_rewrite_back(char *value);

#endif
