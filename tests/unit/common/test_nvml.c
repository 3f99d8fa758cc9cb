/* SPDX-License-Identifier: Apache-2.0 */
/* NVML in a program that has closed its standard streams. */
#include "common/gpu/nvml.h"
#include "common/find/find.h"
#include "common/gpu/nvml_types.h"

#include "tests/check_suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int opened[8], nopened; /* by NVML */
static int taken = -1;         /* what the program puts at number 1 meanwhile */

/* Not moved, as open(2) is in what is ours. */
static int open_lowest(void)
{
	return (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
}

static int init(void)
{
	opened[nopened++] = open_lowest();
	if (taken >= 0)
		dup2(taken, STDOUT_FILENO);
	return 0;
}

static int by_uuid(const char *uuid, nvmlDevice_t *device)
{
	(void)uuid, (void)device;
	opened[nopened++] = open_lowest();
	return 0;
}

static int memory_info(nvmlDevice_t device, nvmlMemory_t *memory)
{
	(void)device;
	opened[nopened++] = open_lowest();
	*memory = (nvmlMemory_t){.total = 2, .free = 1};
	return 0;
}

static int processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	(void)device, (void)infos;
	opened[nopened++] = open_lowest();
	*count = 0;
	return 0;
}

static int count_devices(unsigned int *count)
{
	opened[nopened++] = open_lowest();
	*count = 1;
	return 0;
}

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	(void)name, (void)flags;
	return &opened;
}

void *__wrap_find_function(void *lib, const char *name);
void *__wrap_find_function(void *lib, const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} functions[] = {
		{"nvmlInit_v2", (void *)init},
		{"nvmlDeviceGetHandleByUUID", (void *)by_uuid},
		{"nvmlDeviceGetMemoryInfo", (void *)memory_info},
		{"nvmlDeviceGetComputeRunningProcesses_v3", (void *)processes},
		{"nvmlDeviceGetCount_v2", (void *)count_devices},
	};

	(void)lib;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return NULL;
}

static void ask(void)
{
	struct nvml_holder holders[NVML_HOLDERS];
	size_t total, free;
	unsigned int count;

	ck_assert_int_eq(nvml_memory("GPU", &total, &free), 0);
	ck_assert_uint_eq(total + free, 3);
	ck_assert_int_eq(nvml_holders("GPU", holders), 0);
	ck_assert_int_eq(nvml_device_count(&count), 0);
	ck_assert_int_eq(nopened, 6);
	for (int i = 0; i < nopened; i++)
		ck_assert_int_gt(opened[i], STDERR_FILENO);
}

START_TEST(it_takes_no_number_of_a_standard_stream)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		close(fd);
	ask();
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		ck_assert_int_eq(open_lowest(), fd);
}
END_TEST

START_TEST(what_the_program_puts_there_meanwhile_stays)
{
	taken = open_lowest();
	close(STDOUT_FILENO);
	ask();
	ck_assert_int_ge(fcntl(STDOUT_FILENO, F_GETFD), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nvml");
	TCase *tc = tcase_create("nvml");

	tcase_add_test(tc, it_takes_no_number_of_a_standard_stream);
	tcase_add_test(tc, what_the_program_puts_there_meanwhile_stays);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
