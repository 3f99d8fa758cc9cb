/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML says of GPU 0, in each step:
 *
 *	nvml [--mib N] [--limit N]
 *
 * With --limit it sets CUDAW_MEM to N MiB before its first call, when its libraries are loaded. The memory by both calls, and that of the process, which has N MiB by CUDA. In the end, what becomes of a function
 * that the NVML of the tests lacks.
 */
#include "common/gpu/nvml_types.h"
#include "tests/programs/kernels.h"

#include <dlfcn.h>

static unsigned long mib = 8, limit;
static void *library;

static struct {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, nvmlDevice_t *device);
	int (*memory)(nvmlDevice_t device, nvmlMemory_t *memory);
	int (*memory_v2)(nvmlDevice_t device, nvmlMemory_v2_t *memory);
	int (*processes)(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos);
	int (*name)(nvmlDevice_t device, char *name, unsigned int size);
} nvml;

static void *function(const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		step_die("%s", dlerror());
	return found;
}

static void open_nvml(void)
{
	char text[32];

	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library)
		step_die("%s", dlerror());
	nvml.init = (__typeof__(nvml.init))function("nvmlInit_v2");
	nvml.by_uuid = (__typeof__(nvml.by_uuid))function("nvmlDeviceGetHandleByUUID");
	nvml.memory = (__typeof__(nvml.memory))function("nvmlDeviceGetMemoryInfo");
	nvml.memory_v2 = (__typeof__(nvml.memory_v2))function("nvmlDeviceGetMemoryInfo_v2");
	nvml.processes =
		(__typeof__(nvml.processes))function("nvmlDeviceGetComputeRunningProcesses_v3");
	nvml.name = (__typeof__(nvml.name))dlsym(library, "nvmlDeviceGetName");
	snprintf(text, sizeof(text), "%luM", limit);
	if (limit)
		setenv("CUDAW_MEM", text, 1);
	CALL(nvml.init());
}

static unsigned long long own_bytes(nvmlDevice_t device)
{
	nvmlProcessInfo_t processes[64];
	unsigned int count = 64;

	CALL(nvml.processes(device, &count, processes));
	for (unsigned int i = 0; i < count; i++)
		if (processes[i].pid == (unsigned int)getpid())
			return processes[i].usedGpuMemory;
	return 0;
}

static void say(nvmlDevice_t device)
{
	nvmlMemory_t memory;
	nvmlMemory_v2_t v2 = {.version = (unsigned int)sizeof(v2) | 2 << 24};

	CALL(nvml.memory(device, &memory));
	CALL(nvml.memory_v2(device, &v2));
	printf("nvml: %llu of %llu MiB used, %llu free\n", memory.used >> 20, memory.total >> 20,
	       memory.free >> 20);
	printf("v2: %llu of %llu MiB used, %llu free, %llu reserved\n", v2.used >> 20,
	       v2.total >> 20, v2.free >> 20, v2.reserved >> 20);
	printf("process: %llu MiB\n", own_bytes(device) >> 20);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mib", &mib}, {"limit", &limit}};
	char name[64] = "GPU-";
	struct kernels gpu;
	CUdeviceptr data;
	CUuuid uuid;
	nvmlDevice_t device;

	step_parse(argc, argv, options, 2);
	open_nvml();
	kernels_init(&gpu);
	CALL(cuMemAlloc_v2(&data, mib << 20));
	CALL(cuDeviceGetUuid_v2(&uuid, gpu.dev));
	for (int i = 0; i < 16; i++)
		sprintf(name + strlen(name), "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			(unsigned char)uuid.bytes[i]);
	CALL(nvml.by_uuid(name, &device));
	for (unsigned long k = 0; step_more(k); k++) {
		say(device);
		step_done(k);
	}
	printf("a function that the library lacks: %s\n",
	       !nvml.name ? "missing"
	       : nvml.name(device, name, sizeof(name)) == NVML_ERROR_FUNCTION_NOT_FOUND
		       ? "refused"
		       : "answered");
	return 0;
}
