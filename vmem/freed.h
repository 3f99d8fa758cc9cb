/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FREED_H
#define CUDAW_FREED_H
/*
 * freed: remembers the allocations that were freed last, so that whoever is given a pointer into
 * one can say what it was. A ring of FREED_MAX records, the oldest of which is overwritten.
 *
 * Locking: the caller serialises everything.
 */
#include "vmem/vmem.h"

#define FREED_MAX 16384

struct freed;

/* NULL: no memory. It is never freed. */
struct freed *freed_new(void);

void freed_add(struct freed *freed, const struct vmem_info *info);

/* The allocation that @ptr pointed into: of several, the one freed last. */
bool freed_find(const struct freed *freed, CUdeviceptr ptr, struct vmem_info *info);

#endif
