/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/addresses/addressing.h"
#include "vmem/addresses/translate.h"
#include "vmem/vmem.h"
#include "common/settings.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static char reason[160]; /* written before the first allocation */

static enum addressing asked;

static void read_asked(void)
{
	const char *word = setting_word(SETTING_ADDRESSING);

	if (setting_lists(SETTING_TO_DRIVER, "memory"))
		asked = ADDRESSING_NATIVE;
	else if (word)
		asked = strcmp(word, "mapped") ? ADDRESSING_TRANSLATED : ADDRESSING_MAPPED;
}

enum addressing addressing_asked(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_asked);
	return asked;
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
