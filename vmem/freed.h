/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FREED_H
#define CUDAW_FREED_H
/*
 * freed: remembers the allocations that were freed last, so that a check of a pointer can name the
 * allocation that it pointed into. A ring of FREED_MAX records; a new one replaces the oldest.
 *
 * Locking: the caller serialises everything.
 */
#include "vmem/vmem.h"

#define FREED_MAX 16384

struct freed;

/* NULL if there is no memory. The ring is never freed. */
struct freed *freed_new(void);

void freed_add(struct freed *freed, const struct vmem_info *info);

/* Find the allocation that @ptr pointed into; of several, the last that was freed. */
bool freed_find(const struct freed *freed, CUdeviceptr ptr, struct vmem_info *info);

#endif
