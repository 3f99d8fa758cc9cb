/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/cuda_driver.h"
#include "common/find/find.h"

#include <errno.h>

int cuda_driver_fill(struct cuda_driver *drv, void *handle, const char **missing)
{
	struct cuda_driver d = {0};

#define FILL_REQUIRED(name)                                        \
	d.name = (__typeof__(d.name))find_function(handle, #name); \
	if (!d.name) {                                             \
		*missing = #name;                                  \
		return -ENOSYS;                                    \
	}
#define FILL_OPTIONAL(name) d.name = (__typeof__(d.name))find_function(handle, #name);
	CUDA_DRIVER_REQUIRED(FILL_REQUIRED)
	CUDA_DRIVER_OPTIONAL(FILL_OPTIONAL)
#undef FILL_REQUIRED
#undef FILL_OPTIONAL
	*drv = d;
	return 0;
}
