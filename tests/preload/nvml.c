/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 with TEST_NVML_COUNT GPUs, which all have TEST_NVML_FREE bytes free. What is
 * not set is not known. It is found by LD_LIBRARY_PATH rather than preloaded.
 */
#include <stdlib.h>

#define NOT_SUPPORTED 3 /* NVML_ERROR_NOT_SUPPORTED */

struct memory {
	unsigned long long total, free, used;
};

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, void *infos);
#pragma GCC visibility pop

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	const char *gpus = getenv("TEST_NVML_COUNT");

	if (!gpus)
		return NOT_SUPPORTED;
	*count = strtoul(gpus, NULL, 10);
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
	if (!bytes)
		return NOT_SUPPORTED;
	*memory = (struct memory){.free = strtoull(bytes, NULL, 10)};
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, void *infos)
{
	(void)device;
	(void)infos;
	*count = 0;
	return 0;
}
