/* SPDX-License-Identifier: Apache-2.0 */
#include "common/gpu/nvml.h"
#include "common/find/find.h"
#include "common/gpu/nvml_types.h"
#include "common/system/stdfds.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, nvmlDevice_t *device);
	int (*memory_info)(nvmlDevice_t device, nvmlMemory_t *memory);
	int (*processes)(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos);
	int (*count)(unsigned int *count); /* NULL: not known */
	int (*by_index)(unsigned int index, nvmlDevice_t *device);
	int (*uuid)(nvmlDevice_t device, char *text, unsigned int size);
} nvml;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	void *(*real)(void) = lib ? (__typeof__(real))find_function(lib, NVML_FACE_REAL) : NULL;

	if (real)
		lib = real();
	if (!lib)
		return;
	nvml.init = (__typeof__(nvml.init))find_function(lib, "nvmlInit_v2");
	nvml.by_uuid = (__typeof__(nvml.by_uuid))find_function(lib, "nvmlDeviceGetHandleByUUID");
	nvml.memory_info =
		(__typeof__(nvml.memory_info))find_function(lib, "nvmlDeviceGetMemoryInfo");
	nvml.processes = (__typeof__(nvml.processes))find_function(
		lib, "nvmlDeviceGetComputeRunningProcesses_v3");
	nvml.count = (__typeof__(nvml.count))find_function(lib, "nvmlDeviceGetCount_v2");
	nvml.by_index =
		(__typeof__(nvml.by_index))find_function(lib, "nvmlDeviceGetHandleByIndex_v2");
	nvml.uuid = (__typeof__(nvml.uuid))find_function(lib, "nvmlDeviceGetUUID");
	if (!nvml.init || !nvml.memory_info || !nvml.processes || nvml.init())
		nvml.by_uuid = NULL;
}

void nvml_open(void)
{
	struct stdfds stdfds;

	stdfds_occupy(&stdfds);
	pthread_once(&once, open_library);
	stdfds_release(&stdfds);
}

void nvml_uuid_text(const CUuuid *uuid, char text[NVML_UUID_SIZE])
{
	const unsigned char *b = (const unsigned char *)uuid->bytes;

	snprintf(text, NVML_UUID_SIZE,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
}

bool nvml_uuid_parse(const char *text, CUuuid *uuid)
{
	char made[NVML_UUID_SIZE];
	CUuuid parsed = {0};
	size_t digits = 0;

	if (strlen(text) != NVML_UUID_SIZE - 1)
		return false;
	for (const char *p = text + strlen("GPU-"); *p && digits < 2 * sizeof(parsed); p++) {
		unsigned int digit = *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : *p - '0';

		if (*p == '-')
			continue;
		parsed.bytes[digits / 2] |= (unsigned char)(digit << (digits % 2 ? 0 : 4));
		digits++;
	}
	nvml_uuid_text(&parsed, made);
	if (strcmp(made, text))
		return false;
	*uuid = parsed;
	return true;
}

/* The callers below have occupied the numbers of the standard streams. */
static bool is_open(void)
{
	pthread_once(&once, open_library);
	return nvml.by_uuid;
}

static int find_device(const char *uuid, nvmlDevice_t *device)
{
	return !is_open() || nvml.by_uuid(uuid, device) ? -ENOSYS : 0;
}

int nvml_memory(const char *uuid, size_t *total, size_t *free)
{
	struct stdfds stdfds;
	nvmlDevice_t device;
	nvmlMemory_t info;
	bool known;

	stdfds_occupy(&stdfds);
	known = !find_device(uuid, &device) && !nvml.memory_info(device, &info);
	stdfds_release(&stdfds);
	if (!known)
		return -ENOSYS;
	*total = info.total;
	*free = info.free;
	return 0;
}

int nvml_free_memory(const char *uuid, size_t *bytes)
{
	size_t total;

	return nvml_memory(uuid, &total, bytes);
}

static int by_bytes(const void *a, const void *b)
{
	const struct nvml_holder *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

int nvml_holders(const char *uuid, struct nvml_holder holders[NVML_HOLDERS])
{
	nvmlProcessInfo_t infos[NVML_HOLDERS];
	unsigned int count = NVML_HOLDERS;
	struct stdfds stdfds;
	nvmlDevice_t device;
	bool answers;
	int known = 0;

	stdfds_occupy(&stdfds);
	answers = !find_device(uuid, &device) && !nvml.processes(device, &count, infos);
	stdfds_release(&stdfds);
	if (!answers)
		return -ENOSYS;
	for (unsigned int i = 0; i < count; i++)
		if (infos[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE)
			holders[known++] =
				(struct nvml_holder){(pid_t)infos[i].pid, infos[i].usedGpuMemory};
	qsort(holders, known, sizeof(*holders), by_bytes);
	return known;
}

int nvml_memory_of(const char *uuid, pid_t pid, size_t *bytes)
{
	struct nvml_holder holders[NVML_HOLDERS];
	int count = nvml_holders(uuid, holders);

	for (int i = 0; i < count; i++)
		if (holders[i].pid == pid) {
			*bytes = holders[i].bytes;
			return 0;
		}
	return -ENOSYS;
}

int nvml_process_memory(const char *uuid, size_t *bytes)
{
	return nvml_memory_of(uuid, getpid(), bytes);
}

int nvml_device_count(unsigned int *count)
{
	struct stdfds stdfds;
	unsigned int found;
	bool known;

	stdfds_occupy(&stdfds);
	known = is_open() && nvml.count && !nvml.count(&found);
	stdfds_release(&stdfds);
	if (!known)
		return -ENOSYS;
	*count = found;
	return 0;
}

int nvml_device_uuid(unsigned int index, char text[NVML_UUID_SIZE])
{
	struct stdfds stdfds;
	nvmlDevice_t device;
	bool known;

	stdfds_occupy(&stdfds);
	known = is_open() && nvml.by_index && nvml.uuid && !nvml.by_index(index, &device) &&
		!nvml.uuid(device, text, NVML_UUID_SIZE);
	stdfds_release(&stdfds);
	return known ? 0 : -ENOSYS;
}
