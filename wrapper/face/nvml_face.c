/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML face: libnvidia-ml.so.1 as programs of a job with a memory limit see it. Every function is a trampoline
 * (tramp.h) to the real library, except those that say how much memory a GPU has: they show the limit, and what
 * all processes of the job have of it (common/protocol/quota.h), as cuMemGetInfo() does.
 *
 * It uses nothing of the driver face, and works without it, in nvidia-smi for one. The figures of single
 * processes are NVML's own: they have the processes of others, too, and the contexts, which no limit counts.
 */
#define LOG_PREFIX "nvml: "
#include "libnvml_names.h"
#include "common/environment.h"
#include "common/find/find.h"
#include "common/log.h"
#include "common/gpu/nvml.h"
#include "common/gpu/nvml_types.h"
#include "common/protocol/quota.h"
#include "common/size.h"
#include "common/system/forks.h"
#include "wrapper/face/tramp.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char *const names[] = {LIBNVML_EXPORTS(TRAMP_NAME)};

static struct {
	int (*memory)(nvmlDevice_t device, nvmlMemory_t *memory);
	int (*memory_v2)(nvmlDevice_t device, nvmlMemory_v2_t *memory);
	int (*index)(nvmlDevice_t device, unsigned int *index);
	int (*uuid)(nvmlDevice_t device, char *uuid, unsigned int size);
} real;

static int no_library(void)
{
	return NVML_ERROR_LIBRARY_NOT_FOUND;
}

static int no_function(void)
{
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static const char *error_string(int error)
{
	return error ? "no NVML library was found" : "no error";
}

/*
 * By the account of the job, which knows the GPU by its name. Before a process of the job uses the GPU, the number
 * decides that it has in NVML: CUDA counts the GPUs alike if CUDA_VISIBLE_DEVICES is not set. SIZE_MAX: there is no
 * quota, or the account cannot be read; then *@used is not set, and NVML's own figures stay.
 */
static size_t quota_of_device(nvmlDevice_t device, size_t *used)
{
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	size_t quota = SIZE_MAX;
	unsigned int index;

	if (real.index && !real.index(device, &index))
		quota = quota_of((int)index);
	return real.uuid && !real.uuid(device, uuid, sizeof(uuid)) &&
			       quota_used_of(uuid, used, &quota)
		       ? quota
		       : SIZE_MAX;
}

static void show_quota(nvmlDevice_t device, unsigned long long *total, unsigned long long *free,
		       unsigned long long *used)
{
	size_t has, quota = quota_of_device(device, &has);

	if (quota >= *total)
		return;
	*total = quota;
	*free = size_min(*free, size_less(quota, has));
	*used = quota - *free; /* as NVML: both together are the total */
}

static int memory_info(nvmlDevice_t device, nvmlMemory_t *memory)
{
	int error = real.memory(device, memory);

	if (!error)
		show_quota(device, &memory->total, &memory->free, &memory->used);
	return error;
}

/* Nothing of the job's part is reserved by the driver. */
static int memory_info_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	int error = real.memory_v2(device, memory);
	unsigned long long total = error ? 0 : memory->total;

	if (error)
		return error;
	show_quota(device, &memory->total, &memory->free, &memory->used);
	if (memory->total < total)
		memory->reserved = 0;
	return 0;
}

/* Exported, for who must see what is there (NVML_FACE_REAL). Threads that call it at once get the same library. */
__attribute__((visibility("default"))) void *cudaw_real_nvml(void);

void *cudaw_real_nvml(void)
{
	char path[PATH_MAX];
	void *lib;

	if (find_real_nvml(path, sizeof(path)))
		return NULL;
	/* An absolute path: the loader does not compare it with the sonames of what is loaded. */
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		pr_err_once("%s", dlerror());
	return lib;
}

/* Our function in place of @found, which it calls. */
static void *put_before(const char *name, void *found)
{
	if (!strcmp(name, "nvmlDeviceGetMemoryInfo")) {
		real.memory = (__typeof__(real.memory))found;
		return (void *)memory_info;
	}
	if (!strcmp(name, "nvmlDeviceGetMemoryInfo_v2")) {
		real.memory_v2 = (__typeof__(real.memory_v2))found;
		return (void *)memory_info_v2;
	}
	return found;
}

static void *stand_in(const char *name, bool have_library)
{
	if (!strcmp(name, "nvmlErrorString"))
		return (void *)error_string;
	return have_library ? (void *)no_function : (void *)no_library;
}

/* No lock, as in runtime.c: threads that meet here store the same pointers. */
void libnvml_bind(void)
{
	void *lib;

	environment_keep();
	lib = cudaw_real_nvml();
	real.index = lib ? (__typeof__(real.index))find_function(lib, "nvmlDeviceGetIndex") : NULL;
	real.uuid = lib ? (__typeof__(real.uuid))find_function(lib, "nvmlDeviceGetUUID") : NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		void *found = lib ? find_function(lib, names[i]) : NULL;

		tramp_set(&libnvml_targets[i],
			  found ? put_before(names[i], found) : stand_in(names[i], lib));
	}
}

__attribute__((constructor)) static void on_load(void)
{
	forks_watch();
	quota_find();
}
