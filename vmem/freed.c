/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/freed.h"

#include <stdlib.h>

struct freed {
	size_t count; /* of all that were ever added */
	struct vmem_info ring[FREED_MAX];
};

struct freed *freed_new(void)
{
	return calloc(1, sizeof(struct freed));
}

void freed_add(struct freed *freed, const struct vmem_info *info)
{
	freed->ring[freed->count++ % FREED_MAX] = *info;
}

bool freed_find(const struct freed *freed, CUdeviceptr ptr, struct vmem_info *info)
{
	size_t oldest = freed->count > FREED_MAX ? freed->count - FREED_MAX : 0;

	for (size_t i = freed->count; i > oldest; i--) {
		const struct vmem_info *old = &freed->ring[(i - 1) % FREED_MAX];

		if (ptr - old->start < old->size) {
			*info = *old;
			return true;
		}
	}
	return false;
}
