/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/addressing.h"
#include "vmem/translate.h"
#include "vmem/vmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "vmem: "
#include "vmem/log.h"

static char reason[160]; /* written before the first allocation */

enum addressing addressing_asked(void)
{
	static const char *const names[] = {"", "mapped", "translated", "native"};
	static bool said;
	const char *value = secure_getenv("CUDAW_ADDRESSING");

	for (int i = 0; value && i < 4; i++)
		if (!strcmp(value, names[i]))
			return i;
	if (value && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		pr_err("CUDAW_ADDRESSING=%s: expected mapped, translated or native; ignored",
		       value);
	return ADDRESSING_ANY;
}

bool addressing_cannot_map(const struct cuda_driver *drv, char *text, size_t size)
{
	char name[96] = "";
	int count = 0, vmm;

	if (drv->cuDeviceGetCount(&count))
		return false;
	for (CUdevice dev = 0; dev < count; dev++) {
		if (drv->cuDeviceGetAttribute(
			    &vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, dev) ||
		    vmm)
			continue;
		drv->cuDeviceGetName(name, sizeof(name), dev);
		snprintf(text, size, "GPU %d (%.80s) has no virtual memory management", dev, name);
		return true;
	}
	return false;
}

void addressing_set_translated(const char *why)
{
	snprintf(reason, sizeof(reason), "%s", why);
}

const char *addressing_name(const char **why)
{
	*why = reason;
	if (translate_is_on())
		return "translated";
	return addressing_asked() == ADDRESSING_NATIVE ? "native" : "mapped";
}
