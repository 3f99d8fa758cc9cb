/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIDELITY_IPC_H
#define CUDAW_FIDELITY_IPC_H
/*
 * The cases of fidelity.c about legacy IPC. Most take two processes: the program starts itself once
 * more, as the opener, whose stdin is a socket to the first. They ask by turns, so that the lines of
 * both have an order.
 */
#include <spawn.h>
#include <sys/socket.h>

#define IPC_SIZE  (4 * MIB)
#define IPC_VALUE 77
#define LAZY      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

/* What the opener gets to know. */
struct ipc_said {
	CUipcMemHandle whole, inner, small;
	CUipcEventHandle event;
};

static pid_t opener;
static int opener_socket;

static void opener_start(const char *name)
{
	extern char **environ;
	char *argv[] = {(char *)"fidelity", (char *)name, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ||
	    posix_spawn_file_actions_init(&actions) ||
	    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO) ||
	    posix_spawn(&opener, "/proc/self/exe", &actions, NULL, argv, environ))
		step_die("fidelity: no second process");
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	opener_socket = ends[0];
}

static void opener_end(void)
{
	int status;

	close(opener_socket);
	if (waitpid(opener, &status, 0) != opener)
		step_die("fidelity: the second process is lost");
	say("the opener ends: %s", WIFEXITED(status) && !WEXITSTATUS(status) ? "well" : "badly");
}

static void ipc_send(int fd, const void *data, size_t size)
{
	if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		say("the other process: gone");
}

static void ipc_receive(int fd, void *data, size_t size)
{
	if (recv(fd, data, size, MSG_WAITALL) != (ssize_t)size)
		step_die("fidelity: the other process is gone");
}

/* The other one asks until it is at its pass. */
static void ipc_pass(int fd)
{
	char byte = 'p';

	ipc_send(fd, &byte, 1);
	ipc_receive(fd, &byte, 1);
}

static CUdeviceptr alloc_filled(size_t size)
{
	CUdeviceptr ptr = alloc(size);

	CALL(cuMemsetD32(ptr, IPC_VALUE, size / 4));
	CALL(cuCtxSynchronize());
	return ptr;
}

static void say_word(const char *question, CUdeviceptr ptr)
{
	uint32_t word = 0;
	CUresult result = cuMemcpyDtoH(&word, ptr, sizeof(word));

	say("%s: %s", question, result ? name_of(result) : word == IPC_VALUE ? "right" : "wrong");
}

static void ask_get(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	CUdeviceptr ptr = alloc(IPC_SIZE), gone = alloc(IPC_SIZE), pooled, mapped;
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUipcMemHandle once, again;
	void *host;

	CALL(cuMemFree(gone));
	CALL(cuMemAllocAsync(&pooled, IPC_SIZE, NULL));
	CALL(cuMemHostAlloc(&host, IPC_SIZE, CU_MEMHOSTALLOC_DEVICEMAP));
	CALL(cuMemAddressReserve(&mapped, IPC_SIZE, 0, 0, 0));
	CALL(cuMemCreate(&handle, IPC_SIZE, &prop, 0));
	CALL(cuMemMap(mapped, IPC_SIZE, 0, handle, 0));
	CALL(cuMemSetAccess(mapped, IPC_SIZE, &access, 1));
	say_result("the handle of 4 MiB", cuIpcGetMemHandle(&once, ptr));
	say_result("once more", cuIpcGetMemHandle(&again, ptr));
	say("both are: %s", memcmp(&once, &again, sizeof(once)) ? "different" : "the same");
	say_result("the handle of its middle", cuIpcGetMemHandle(&again, ptr + 2 * MIB));
	say_result("the handle of nothing", cuIpcGetMemHandle(&again, 0));
	say_result("the handle of freed memory", cuIpcGetMemHandle(&again, gone));
	say_result("the handle of cuMemAllocAsync's memory", cuIpcGetMemHandle(&again, pooled));
	say_result("the handle of cuMemCreate's memory", cuIpcGetMemHandle(&again, mapped));
	say_result("the handle of host memory",
		   cuIpcGetMemHandle(&again, (CUdeviceptr)(uintptr_t)host));
	say_result("opening it in the same process", cuIpcOpenMemHandle(&gone, once, LAZY));
	say_result("closing cuMemAlloc's memory", cuIpcCloseMemHandle(ptr));
	say_result("closing nothing", cuIpcCloseMemHandle(0));
	say_result("cuMemFree of it then", cuMemFree(ptr));
}

static void case_ipc_get(void)
{
	ask_get();
	/* Last, as a driver may crash by it. */
	say_result("no place for the handle", cuIpcGetMemHandle(NULL, alloc(IPC_SIZE)));
}

/* What the opener can find out about memory that it has opened. */
static void ask_pointer(CUdeviceptr ptr)
{
	static const struct {
		const char *name;
		CUpointer_attribute attribute;
	} numbers[] = {
		{"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
		{"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
		{"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
		{"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
		{"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
		{"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
		{"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
		{"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
		{"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER},
		{"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr start = 0, base = 0;
	CUcontext ctx = NULL;
	CUipcMemHandle ipc;
	size_t size = 0;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t value = 0;
		CUresult result = cuPointerGetAttribute(&value, numbers[i].attribute, ptr + 512);

		say("%s of opened memory: %s, %lu", numbers[i].name, name_of(result),
		    (unsigned long)value);
	}
	cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
	say("its context: %s", ctx == gpu.ctx ? "the opener's" : "another");
	cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 512);
	say("its range begins: %s", start == ptr ? "at the pointer" : "elsewhere");
	say_result("cuMemGetAddressRange of it", cuMemGetAddressRange(&base, &size, ptr + 512));
	say("the range's base: %s", base == ptr ? "the pointer" : "another");
	say("the range's size: %zu", size);
	sync_memops("opened memory", ptr);
	say_result("cuMemRetainAllocationHandle of opened memory",
		   cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
	say_result("a handle of opened memory", cuIpcGetMemHandle(&ipc, ptr));
	say_result("cuMemFree of opened memory", cuMemFree(ptr));
	say_word("a word of it then", ptr);
}

static void ask_closes(CUdeviceptr ptr, const struct ipc_said *said)
{
	CUstream stream = stream_new();
	CUdeviceptr again = 0;

	say_result("opening it again", cuIpcOpenMemHandle(&again, said->whole, LAZY));
	say("its address: %s", again == ptr ? "the same" : "another");
	say_result("closing an inner pointer", cuIpcCloseMemHandle(ptr + 512));
	say_result("closing it", cuIpcCloseMemHandle(ptr));
	say_word("a word while it is open once more", ptr);
	WAITS("closing it the second time, beside a kernel", cuIpcCloseMemHandle(ptr));
	say_result("closing it the third time", cuIpcCloseMemHandle(ptr));
	say_word("a word of closed memory", ptr);
	say_result("opening it after that", cuIpcOpenMemHandle(&again, said->whole, LAZY));
	say_word("a word of it", again);
	say_result("closing it after that", cuIpcCloseMemHandle(again));
}

static void case_ipc_opener(void)
{
	CUdeviceptr ptr = 0, inner = 0, small = 0;
	struct ipc_said said;

	ipc_receive(STDIN_FILENO, &said, sizeof(said));
	say_result("opening without flags", cuIpcOpenMemHandle(&ptr, said.whole, 0));
	say_result("opening with flags of the future", cuIpcOpenMemHandle(&ptr, said.whole, 2));
	say_result("opening 4 MiB", cuIpcOpenMemHandle(&ptr, said.whole, LAZY));
	say_foreign("memory that is open", ptr, IPC_SIZE, ptr);
	say_word("a word", ptr);
	ask_pointer(ptr);
	say_result("opening the handle of its middle",
		   cuIpcOpenMemHandle(&inner, said.inner, LAZY));
	say("that is: %s", inner == ptr             ? "the start"
			   : inner == ptr + 2 * MIB ? "the middle"
						    : "elsewhere");
	say_word("a word there", inner);
	say_result("closing that", cuIpcCloseMemHandle(inner));
	ask_closes(ptr, &said);
	say_result("opening 4 KiB", cuIpcOpenMemHandle(&small, said.small, LAZY));
	say_word("a word of 4 KiB", small);
	CALL(cuMemsetD32(small, IPC_VALUE + 1, 1));
	CALL(cuCtxSynchronize());
	ipc_pass(STDIN_FILENO);
	say_result("closing 4 KiB whose exporter has freed them", cuIpcCloseMemHandle(small));
}

static void case_ipc(void)
{
	CUdeviceptr whole, small;
	struct ipc_said said = {0};
	uint32_t word;

	opener_start("ipc_opener");
	whole = alloc_filled(IPC_SIZE);
	small = alloc_filled(4 * KIB);
	CALL(cuIpcGetMemHandle(&said.whole, whole));
	CALL(cuIpcGetMemHandle(&said.inner, whole + 2 * MIB));
	CALL(cuIpcGetMemHandle(&said.small, small));
	ipc_send(opener_socket, &said, sizeof(said));
	ipc_receive(opener_socket, &(char){0}, 1);
	CALL(cuMemcpyDtoH(&word, small, sizeof(word)));
	say("the exporter sees the opener's word: %s", word == IPC_VALUE + 1 ? "yes" : "no");
	say_result("the exporter frees memory that is open", cuMemFree(small));
	ipc_send(opener_socket, "p", 1);
	opener_end();
}

/* Memory that is freed while another process has it open. */
static void case_ipc_outlives_opener(void)
{
	struct ipc_said said;
	CUdeviceptr ptr = 0;

	ipc_receive(STDIN_FILENO, &said, sizeof(said));
	say_result("opening memory", cuIpcOpenMemHandle(&ptr, said.whole, LAZY));
	ipc_pass(STDIN_FILENO);
	say_word("a word after the exporter's free", ptr);
	say_result("closing memory after the exporter's free", cuIpcCloseMemHandle(ptr));
	say_result("opening freed memory", cuIpcOpenMemHandle(&ptr, said.whole, LAZY));
}

static void case_ipc_outlives(void)
{
	CUdeviceptr ptr, next;
	struct ipc_said said = {0};

	opener_start("ipc_outlives_opener");
	ptr = alloc_filled(IPC_SIZE);
	CALL(cuIpcGetMemHandle(&said.whole, ptr));
	ipc_send(opener_socket, &said, sizeof(said));
	ipc_receive(opener_socket, &(char){0}, 1);
	say_result("the exporter's free", cuMemFree(ptr));
	say_result("its next allocation", cuMemAlloc(&next, IPC_SIZE));
	CALL(cuMemsetD32(next, 0, IPC_SIZE / 4));
	CALL(cuCtxSynchronize());
	ipc_send(opener_socket, "p", 1);
	opener_end();
}

/* Handles that nobody has made. */
static void case_ipc_wrong_opener(void)
{
	CUipcMemHandle handle;
	struct ipc_said said;
	CUdeviceptr ptr = 0;

	ipc_receive(STDIN_FILENO, &said, sizeof(said));
	memset(&handle, 0, sizeof(handle));
	say_result("opening zeros", cuIpcOpenMemHandle(&ptr, handle, LAZY));
	memset(&handle, 0xff, sizeof(handle));
	say_result("opening ones", cuIpcOpenMemHandle(&ptr, handle, LAZY));
	say_result("closing what was never opened", cuIpcCloseMemHandle(alloc(IPC_SIZE)));
	handle = said.whole;
	handle.reserved[0] ^= 0x10;
	say_result("opening with a wrong first byte", cuIpcOpenMemHandle(&ptr, handle, LAZY));
	/* Last, as a driver may crash by it. */
	say_result("no place for the pointer", cuIpcOpenMemHandle(NULL, said.whole, LAZY));
}

static void case_ipc_wrong(void)
{
	struct ipc_said said = {0};

	opener_start("ipc_wrong_opener");
	CALL(cuIpcGetMemHandle(&said.whole, alloc(IPC_SIZE)));
	ipc_send(opener_socket, &said, sizeof(said));
	opener_end();
}

static void case_ipc_events_opener(void)
{
	CUstream stream = stream_new();
	struct ipc_said said;
	CUevent event = NULL, other;
	float ms;

	ipc_receive(STDIN_FILENO, &said, sizeof(said));
	CALL(cuEventCreate(&other, 0));
	say_result("opening an event", cuIpcOpenEventHandle(&event, said.event));
	say_result("asking for it, as it was recorded behind a kernel", cuEventQuery(event));
	say_result("a stream that waits for it", cuStreamWaitEvent(stream, event, 0));
	say_result("asking for the stream", cuStreamQuery(stream));
	ipc_pass(STDIN_FILENO);
	say_result("waiting for the stream", cuStreamSynchronize(stream));
	say_result("asking for the event then", cuEventQuery(event));
	CALL(cuEventRecord(other, stream));
	say_result("the time between it and another", cuEventElapsedTime(&ms, event, other));
	say_result("a handle of an opened event", cuIpcGetEventHandle(&said.event, event));
	say_result("recording an opened event", cuEventRecord(event, stream));
	say_result("waiting for that", cuEventSynchronize(event));
	ipc_pass(STDIN_FILENO);
	say_result("waiting for an event whose creator has destroyed it",
		   cuEventSynchronize(event));
	say_result("destroying an opened event", cuEventDestroy(event));
}

static void case_ipc_events(void)
{
	CUstream stream = stream_new();
	struct ipc_said said = {0};
	CUevent event, plain;

	opener_start("ipc_events_opener");
	say_result("an interprocess event that measures time",
		   cuEventCreate(&event, CU_EVENT_INTERPROCESS));
	CALL(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	say_result("the handle of another event", cuIpcGetEventHandle(&said.event, plain));
	CALL(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	say_result("the handle of an event", cuIpcGetEventHandle(&said.event, event));
	busy(stream);
	CALL(cuEventRecord(event, stream));
	ipc_send(opener_socket, &said, sizeof(said));
	ipc_receive(opener_socket, &(char){0}, 1);
	*flag = 1;
	CALL(cuStreamSynchronize(stream));
	ipc_pass(opener_socket);
	say_result("asking for the event that the opener has recorded", cuEventQuery(event));
	say_result("destroying the event", cuEventDestroy(event));
	ipc_send(opener_socket, "p", 1);
	opener_end();
}

#endif
