/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Abilities of a device that a program under cudaw does not see, because no pause can carry their
 * use. NCCL, PyTorch and others ask for them first, and share memory in another way without them.
 * A program that does not ask gets them from the real driver, and its pause is refused by name.
 */
#include "common/settings.h"
#include "wrapper/real.h"

#include <stdbool.h>

static bool hidden(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
		return !setting_lists(SETTING_TO_DRIVER, "multicast");
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
		return !setting_lists(SETTING_TO_DRIVER, "fabric");
	default:
		return false;
	}
}

CUresult hook_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	CUresult result = real.cuDeviceGetAttribute(pi, attrib, dev);

	if (!result && hidden(attrib))
		*pi = 0;
	return result;
}
