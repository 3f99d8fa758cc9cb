/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release/devices.h"
#include "common/gpu/gpu.h"
#include "common/gpu/nvml.h"
#include "common/protocol/quota.h"
#include "vmem/cuda_driver.h"

#include <string.h>

static struct gpu devices[GPU_MAX];
static size_t ndevices;

void devices_find(const struct cuda_driver *drv)
{
	CUuuid uuid = {0};
	int count = 0;

	drv->cuDeviceGetCount(&count);
	for (int i = 0; i < count && i < GPU_MAX; i++) {
		struct gpu *d = &devices[i];

		drv->cuDeviceGetName(d->name, sizeof(d->name), i);
		if (drv->cuDeviceGetUuid_v2)
			drv->cuDeviceGetUuid_v2(&uuid, i);
		nvml_uuid_text(&uuid, d->uuid);
		drv->cuDeviceTotalMem_v2(&d->memory, i);
		drv->cuDeviceGetAttribute(&d->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					  i);
		drv->cuDeviceGetAttribute(&d->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					  i);
		ndevices = i + 1;
	}
	if (drv->cuDeviceGetUuid_v2)
		quota_name_gpus(devices, ndevices);
}

const struct gpu *devices_all(size_t *count)
{
	*count = ndevices;
	return devices;
}

void devices_move(const CUcheckpointGpuPair *pairs, size_t count)
{
	CUuuid uuid;

	for (size_t dev = 0; dev < ndevices; dev++)
		for (size_t i = 0; i < count; i++)
			if (nvml_uuid_parse(devices[dev].uuid, &uuid) &&
			    !memcmp(&uuid, &pairs[i].oldUuid, sizeof(uuid))) {
				nvml_uuid_text(&pairs[i].newUuid, devices[dev].uuid);
				break;
			}
	quota_name_gpus(devices, ndevices);
}
