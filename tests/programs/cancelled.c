/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes each of its driver calls twice: in a thread that has been cancelled before, and that must end at its
 * own cancellation point behind the call; and in the first thread, which must not wait for what the other one
 * has left. Another process (--fd N) imports the memory in the same way.
 */
#include "tests/programs/step.h"

#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>

#define SIZE (2UL << 20)

static CUcontext ctx;
static CUstream stream;
static unsigned long ticket;
static bool returned;

static void init(void)
{
	CALL(cuInit(0));
}

static void use_context(void)
{
	CALL(cuDevicePrimaryCtxRetain(&ctx, 0));
	CALL(cuCtxSetCurrent(ctx));
}

static void make_stream(void)
{
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void allocate(void)
{
	static unsigned char host[4096];
	CUdeviceptr at;

	CALL(cuMemAlloc_v2(&at, SIZE));
	CALL(cuMemcpyHtoD_v2(at, host, sizeof(host)));
	CALL(cuMemFree_v2(at));
	CALL(cuMemAllocAsync(&at, SIZE, stream));
	CALL(cuMemsetD8Async(at, 1, SIZE, stream));
	CALL(cuMemFreeAsync(at, stream));
	CALL(cuStreamSynchronize(stream));
}

static void share_by_handle(void)
{
	CUipcMemHandle handle;
	CUdeviceptr at;

	CALL(cuMemAlloc_v2(&at, SIZE));
	CALL(cuIpcGetMemHandle(&handle, at));
}

static void share_by_descriptor(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes =
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	int fd;

	CALL(cuMemCreate(&handle, SIZE, &prop, 0));
	CALL(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  0));
	ticket = (unsigned long)fd;
}

static void import(void)
{
	CUmemGenericAllocationHandle handle;

	CALL(cuMemImportFromShareableHandle(&handle, (void *)ticket,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CALL(cuMemRelease(handle));
}

static void *cancelled(void *arg)
{
	void (*call)(void) = *(void (**)(void))arg;

	/* A driver call needs the context of its thread. */
	if (ctx)
		CALL(cuCtxSetCurrent(ctx));
	pthread_cancel(pthread_self());
	call();
	returned = true;
	pthread_testcancel();
	return NULL;
}

static void call_twice(const char *what, void (*call)(void))
{
	pthread_t thread;
	void *result;

	returned = false;
	pthread_create(&thread, NULL, cancelled, &call);
	pthread_join(thread, &result);
	if (!returned || result != PTHREAD_CANCELED)
		step_die("cancelled: %s: a driver call is a cancellation point", what);
	call();
}

static void run_importer(char *program)
{
	char text[16];
	char *const args[] = {program, "--fd", text, NULL};
	pid_t pid = fork();

	if (pid) {
		step_await_child(pid, 1);
		return;
	}
	snprintf(text, sizeof(text), "%lu", ticket);
	execv("/proc/self/exe", args);
	_exit(1);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"fd", &ticket}};

	step_parse(argc, argv, options, 1);
	call_twice("init", init);
	call_twice("use_context", use_context);
	call_twice("make_stream", make_stream);
	call_twice("allocate", allocate);
	if (ticket) {
		call_twice("import", import);
		return 0;
	}
	call_twice("share_by_handle", share_by_handle);
	call_twice("share_by_descriptor", share_by_descriptor);
	CALL(fcntl((int)ticket, F_SETFD, 0));
	run_importer(argv[0]);
	puts("cancelled: no call was");
	return 0;
}
