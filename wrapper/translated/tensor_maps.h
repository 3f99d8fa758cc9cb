/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_TENSOR_MAPS_H
#define CUDAW_WRAPPER_TENSOR_MAPS_H
/*
 * tensor_maps: the tensor maps (TMA descriptors) of the program, with translated addressing. A map
 * has an address inside, in a form of the hardware, and the program keeps the map anywhere: it is
 * recognised by its bytes. After its memory has come back elsewhere, kernels and nodes of graphs
 * get another map in its place. The last TENSOR_MAPS_MAX maps of carried memory are known. Of two
 * maps with the same bytes it is the one that was encoded last.
 *
 * Thread-safe. A launch takes no lock for bytes that match no map. No call into the driver under
 * the lock.
 */
#include <cuda.h>
#include <stdbool.h>

#define TENSOR_MAPS_MAX 16384

/* @map was encoded, or changed, for the virtual address @ptr. */
void tensor_maps_add(const CUtensorMap *map, CUdeviceptr ptr);

/* If there is a map of the program at @value, put the current one in its place. */
void tensor_maps_rewrite(char *value);

/* The reverse: true if a current map was at @value, and the program's has taken its place. */
bool tensor_maps_rewrite_back(char *value);

#endif
