/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports an allocation to --count processes, one after the other. Each imports it and ends. A server
 * has as many clients in its time as come to it.
 */
#include "tests/programs/step.h"

#include <cuda.h>
#include <fcntl.h>

#define SIZE (2UL << 20)

static void use_cuda(void)
{
	CUcontext ctx;

	CALL(cuInit(0));
	CALL(cuDevicePrimaryCtxRetain(&ctx, 0));
	CALL(cuCtxSetCurrent(ctx));
}

static int import(int fd)
{
	CUmemGenericAllocationHandle handle;

	use_cuda();
	CALL(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CALL(cuMemRelease(handle));
	return 0;
}

static int export_all(char *program, unsigned long count)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes =
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	char text[16];
	int fd;

	use_cuda();
	CALL(cuMemCreate(&handle, SIZE, &prop, 0));
	CALL(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  0));
	CALL(fcntl(fd, F_SETFD, 0));
	snprintf(text, sizeof(text), "%d", fd);
	for (unsigned long i = 1; i <= count; i++) {
		char *const args[] = {program, "--fd", text, NULL};
		pid_t pid = fork();

		if (pid < 0)
			step_die("importers: fork: %s", strerror(errno));
		if (!pid) {
			execv("/proc/self/exe", args);
			_exit(1);
		}
		step_await_child(pid, i);
	}
	printf("importers: %lu processes imported the memory\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long count = 300, fd = 0;
	const struct step_option options[] = {{"count", &count}, {"fd", &fd}};

	step_parse(argc, argv, options, 2);
	return fd ? import((int)fd) : export_all(argv[0], count);
}
