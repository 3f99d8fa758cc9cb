/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 with TEST_NVML_COUNT GPUs, which all have TEST_NVML_FREE bytes free, of which
 * number 1 has the UUID TEST_NVML_UUID, or all have those of simulated ones, and on which TEST_NVML_PROCESS, a PID and bytes, is a process.
 * What is not set is not known. It is found by LD_LIBRARY_PATH rather than preloaded. If a file
 * "holders" lies beside it, with a line "PID BYTES" for each process on a GPU, no memory is free, or
 * if it is empty, 1 TiB: a program without these variables in its environment finds it, too. With
 * TEST_NVML_FILE, a file "TOTAL FREE" of bytes, all GPUs have so much, and the processes of further lines
 * "PID BYTES"; if it is a file of CUDAW_SIM_SHARED, they are the simulated ones. With TEST_NVML_MS it takes so many milliseconds to look,
 * and with TEST_NVML_PARENT, a file, it writes there first whose child it is in. With TEST_NVML_ONLY, a UUID, it knows no other. TEST_NVML_DEVICE: see nvml_checkpoint.h.
 */
#include "common/gpu/nvml_types.h"
#include "tests/preload/nvml_checkpoint.h"
#include "tests/sim/account.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIMULATED 16 /* GPUs, at most */

static FILE *open_holders(void)
{
	char path[PATH_MAX];
	Dl_info info;

	if (!dladdr((void *)open_holders, &info))
		return NULL;
	snprintf(path, sizeof(path), "%s", info.dli_fname);
	snprintf(strrchr(path, '/'), sizeof("/holders"), "/holders");
	return fopen(path, "re");
}

/* What is known of a GPU. */
struct gpu {
	nvmlMemory_t memory;
	nvmlProcessInfo_t processes[ACCOUNT_SLOTS];
	unsigned int count;
};

static void add_process(struct gpu *gpu, unsigned int pid, unsigned long long bytes)
{
	if (bytes && gpu->count < ACCOUNT_SLOTS)
		gpu->processes[gpu->count++] =
			(nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = bytes};
}

static bool is_ours(const struct account_slot *slot)
{
	return slot->pid == getpid();
}

/* Of a simulated GPU: it ends the UUID. */
static unsigned long number_of(const char *uuid)
{
	return strtoul(uuid + strlen(uuid) - 2, NULL, 16);
}

static bool read_sim(int fd, const struct account_file *account, const char *uuid, struct gpu *gpu)
{
	unsigned long number = number_of(uuid);

	if (account->magic != ACCOUNT_MAGIC || number >= ACCOUNT_DEVICES)
		return false;
	gpu->memory.total = account->memory;
	for (int i = 0; i < ACCOUNT_SLOTS; i++) {
		if (!account_slot_live(fd, i) && !is_ours(&account->slots[i]))
			continue;
		gpu->memory.used += account->slots[i].used[number];
		add_process(gpu, account->slots[i].pid, account->slots[i].used[number]);
	}
	gpu->memory.free = gpu->memory.total - gpu->memory.used;
	return true;
}

static bool read_text(const char *text, struct gpu *gpu)
{
	unsigned long long bytes;
	unsigned int pid;
	int len;

	if (sscanf(text, "%llu %llu %n", &gpu->memory.total, &gpu->memory.free, &len) != 2)
		return false;
	for (text += len; sscanf(text, "%u %llu %n", &pid, &bytes, &len) == 2; text += len)
		add_process(gpu, pid, bytes);
	return true;
}

/* True if this process has a slot: then it must not close the file, which would end its locks there. */
static bool is_simulated(int fd)
{
	struct account_file account;

	if (pread(fd, &account, sizeof(account), 0) != sizeof(account))
		return false;
	for (int i = 0; i < ACCOUNT_SLOTS; i++)
		if (is_ours(&account.slots[i]))
			return true;
	return false;
}

/* As TEST_NVML_FILE says. False: it is not set, or there is no such file. */
static bool read_gpu(const char *uuid, struct gpu *gpu)
{
	static int ours = -1;
	const char *path = getenv("TEST_NVML_FILE");
	int fd = ours >= 0 ? ours : path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	struct account_file account;
	char text[1024] = "";
	bool known = false;

	*gpu = (struct gpu){.count = 0};
	if (fd < 0)
		return false;
	if (is_simulated(fd))
		ours = fd;
	if (fd == ours || !account_lock(fd, F_WRLCK, 0, F_SETLKW)) {
		if (pread(fd, &account, sizeof(account), 0) == sizeof(account))
			known = read_sim(fd, &account, uuid, gpu);
		else if (pread(fd, text, sizeof(text) - 1, 0) > 0)
			known = read_text(text, gpu);
	}
	if (fd != ours)
		close(fd);
	return known;
}

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
int nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int size);
int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
					    nvmlProcessInfo_t *infos);
#pragma GCC visibility pop

int nvmlInit_v2(void)
{
	held_begin();
	return 0;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	const char *gpus = getenv("TEST_NVML_COUNT");

	held_wait();
	if (!gpus)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = strtoul(gpus, NULL, 10);
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	const char *only = getenv("TEST_NVML_ONLY");

	*device = (void *)uuid;
	return only && strcmp(only, uuid) ? NVML_ERROR_NOT_FOUND : 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	static char simulated[SIMULATED][48];
	unsigned int count = 0;

	*device = getenv("TEST_NVML_UUID");
	if (*device)
		return index == 1 ? 0 : NVML_ERROR_NOT_SUPPORTED;
	if (nvmlDeviceGetCount_v2(&count) || index >= count || index >= SIMULATED)
		return NVML_ERROR_NOT_SUPPORTED;
	snprintf(simulated[index], sizeof(simulated[index]),
		 "GPU-63756461-772d-7369-6d75-6c61746564%02x", index);
	*device = simulated[index];
	return 0;
}

int nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int size)
{
	snprintf(text, size, "%s", (const char *)device);
	return 0;
}

int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	*index = (unsigned int)number_of(device);
	return 0;
}

static void say_parent(void)
{
	const char *path = getenv("TEST_NVML_PARENT");
	FILE *file = path ? fopen(path, "we") : NULL;

	if (file) {
		fprintf(file, "%d", getppid());
		fclose(file);
	}
}

static int memory_of(nvmlDevice_t device, nvmlMemory_t *memory)
{
	const char *bytes = getenv("TEST_NVML_FREE"), *ms = getenv("TEST_NVML_MS");
	FILE *holders = open_holders();
	struct gpu gpu;

	say_parent();
	if (ms)
		usleep(strtoul(ms, NULL, 10) * 1000);
	if (holders) {
		bytes = fgetc(holders) == EOF ? "1099511627776" : "0";
		fclose(holders);
	}
	if (read_gpu(device, &gpu)) {
		*memory = gpu.memory;
		return 0;
	}
	if (!bytes)
		return NVML_ERROR_NOT_SUPPORTED;
	*memory = (nvmlMemory_t){.free = strtoull(bytes, NULL, 10)};
	return 0;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	return memory_of(device, memory);
}

/* The driver has reserved a MiB. */
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlMemory_t all = {0};
	int error = memory_of(device, &all);

	*memory = (nvmlMemory_v2_t){memory->version, all.total, 1 << 20, all.free, all.used};
	return error;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
					    nvmlProcessInfo_t *infos)
{
	const char *text = getenv("TEST_NVML_PROCESS");
	FILE *holders = open_holders();
	unsigned int room = *count;
	struct gpu gpu;

	read_gpu(device, &gpu);
	*count = text && sscanf(text, "%u %llu", &infos->pid, &infos->usedGpuMemory) == 2;
	while (holders && *count < room &&
	       fscanf(holders, "%u %llu", &infos[*count].pid, &infos[*count].usedGpuMemory) == 2)
		++*count;
	for (unsigned int i = 0; i < gpu.count && *count < room; i++)
		infos[(*count)++] = gpu.processes[i];
	if (holders)
		fclose(holders);
	return 0;
}
