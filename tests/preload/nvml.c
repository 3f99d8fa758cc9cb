/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 whose GPUs all have TEST_NVML_FREE bytes free. It is found by LD_LIBRARY_PATH
 * rather than preloaded.
 */
#include <stdlib.h>

struct memory {
	unsigned long long total, free, used;
};

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, void *infos);
#pragma GCC visibility pop

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	*device = (void *)uuid;
	return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	const char *bytes = getenv("TEST_NVML_FREE");

	(void)device;
	*memory = (struct memory){.free = bytes ? strtoull(bytes, NULL, 10) : 0};
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, void *infos)
{
	(void)device;
	(void)infos;
	*count = 0;
	return 0;
}
