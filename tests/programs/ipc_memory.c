/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the driver answers about memory that another process has shared by a legacy IPC handle: one case
 * a process, named by the argument; "list" prints the names (tests/gpu/ipc_memory.py). The other
 * process is a child, which allocates and exports what it is asked for.
 */
#include "tests/programs/questions.h"

#include <stdbool.h>
#include <sys/socket.h>

#define LAZY            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define OPEN(ptr, what) cuIpcOpenMemHandle_v2(ptr, (what)->handle, LAZY)

/* To the child: allocate @size bytes, and export the address @inner bytes behind their start. */
struct order {
	size_t size, inner;
	uint32_t first, last; /* its first word, and its last one */
};

struct exported {
	CUdeviceptr ptr; /* there */
	CUipcMemHandle handle;
};

static int to_child;

static void serve(int from_parent)
{
	struct exported made;
	struct order order;

	while (read(from_parent, &order, sizeof(order)) == sizeof(order)) {
		if (!gpu.ctx)
			kernels_init(&gpu);
		CALL(cuMemAlloc(&made.ptr, order.size));
		CALL(cuMemsetD32(made.ptr, order.first, 1));
		CALL(cuMemsetD32(made.ptr + order.size - 4, order.last, 1));
		CALL(cuCtxSynchronize());
		CALL(cuIpcGetMemHandle(&made.handle, made.ptr + order.inner));
		if (write(from_parent, &made, sizeof(made)) != sizeof(made))
			break;
	}
	exit(0);
}

static struct exported ask_for(struct order order)
{
	struct exported made;

	if (write(to_child, &order, sizeof(order)) != sizeof(order) ||
	    read(to_child, &made, sizeof(made)) != sizeof(made))
		step_die("the other process has ended");
	return made;
}

static void say_words(const char *what, CUdeviceptr at, size_t size)
{
	uint32_t first = 0, last = 0;
	CUresult result = cuMemcpyDtoH(&first, at, 4);

	if (!result)
		result = cuMemcpyDtoH(&last, at + size - 4, 4);
	say("%s: %u %u, %s", what, first, last, name_of(result));
}

static void case_opened(void)
{
	struct exported big = ask_for((struct order){4 * MIB, 0, 11, 12});
	struct exported inner = ask_for((struct order){4 * MIB, 2 * MIB + 512, 21, 22});
	struct exported small = ask_for((struct order){1000, 0, 31, 32});
	struct exported beside = ask_for((struct order){1000, 0, 41, 42});
	CUdeviceptr ptr, again, at;

	say_result("opening", OPEN(&ptr, &big));
	say_words("its words", ptr, 4 * MIB);
	say_result("opening it again", OPEN(&again, &big));
	say("at the same address: %s", ptr == again ? "yes" : "no");
	say_result("closing it", cuIpcCloseMemHandle(ptr));
	say_words("its words after that", ptr, 4 * MIB);
	say_result("closing another address in it", cuIpcCloseMemHandle(ptr + 2 * MIB));
	say_result("closing it again", cuIpcCloseMemHandle(ptr));
	say_result("closing it once more", cuIpcCloseMemHandle(ptr));
	say_result("opening the handle of an inner pointer", OPEN(&ptr, &inner));
	say_words("  its words", ptr, 4 * MIB);
	say_result("opening 1000 bytes", OPEN(&ptr, &small));
	say_words("  their words", ptr, 1000);
	say_result("opening 1000 bytes beside them", OPEN(&at, &beside));
	say_words("  their words", at, 1000);
	CALL(cuMemsetD32(ptr, 33, 1));
	CALL(cuMemsetD32(at, 43, 1));
	CALL(cuIpcCloseMemHandle(ptr));
	say_words("  after the others are closed", at, 1000);
	say_result("opening the first again", OPEN(&ptr, &small));
	say_words("  their words", ptr, 1000);
}

static void case_refused(void)
{
	struct exported made = ask_for((struct order){4 * MIB, 0, 1, 2}), own;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr = 0;

	own.ptr = alloc(4 * MIB);
	say_result("exporting", cuIpcGetMemHandle(&own.handle, own.ptr));
	say_result("opening what this process exports", OPEN(&ptr, &own));
	say_result("opening without flags", cuIpcOpenMemHandle_v2(&ptr, made.handle, 0));
	say_result("opening zeros",
		   cuIpcOpenMemHandle_v2(&ptr, (CUipcMemHandle){.reserved = {0}}, LAZY));
	say_result("closing memory of this process", cuIpcCloseMemHandle(own.ptr));
	CALL(OPEN(&ptr, &made));
	say_result("exporting what is opened", cuIpcGetMemHandle(&own.handle, ptr));
	say_result("freeing it", cuMemFree(ptr));
	say_result("a handle of it", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
	say_words("its words", ptr, 4 * MIB);
	CALL(cuCtxSetCurrent(NULL));
	say_result("opening without a context", OPEN(&ptr, &made));
	say_result("closing without one", cuIpcCloseMemHandle(ptr));
}

static void case_waits(void)
{
	struct exported made = ask_for((struct order){4 * MIB, 0, 1, 2});
	CUstream stream = stream_new();
	CUcontext other;
	CUdeviceptr ptr;

	CALL(OPEN(&ptr, &made));
	WAITS("closing beside a kernel", cuIpcCloseMemHandle(ptr));
	CALL(OPEN(&ptr, &made));
	CALL(cuCtxCreate(&other, NULL, 0, gpu.dev));
	CALL(cuCtxSetCurrent(gpu.ctx));
	CALL(cuCtxSynchronize());
	WAITS("closing in another context beside a kernel of the one that opened it",
	      (cuCtxSetCurrent(other), cuIpcCloseMemHandle(ptr)));
}

static void case_green(void)
{
	struct exported made = ask_for((struct order){4 * MIB, 0, 1, 2});
	CUdevResource all, part;
	CUdevResourceDesc desc;
	unsigned int groups = 1;
	CUgreenCtx green;
	CUdeviceptr ptr, again;
	CUcontext ctx;

	CALL(cuDeviceGetDevResource(gpu.dev, &all, CU_DEV_RESOURCE_TYPE_SM));
	CALL(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
	CALL(cuDevResourceGenerateDesc(&desc, &part, 1));
	CALL(cuGreenCtxCreate(&green, desc, gpu.dev, CU_GREEN_CTX_DEFAULT_STREAM));
	CALL(cuCtxFromGreenCtx(&ctx, green));
	CALL(cuCtxSetCurrent(ctx));
	say_result("opening in a green context", OPEN(&ptr, &made));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("opening it in the primary context, too", OPEN(&again, &made));
	say("at the same address: %s", ptr == again ? "yes" : "no");
	CALL(cuGreenCtxDestroy(green));
	say_words("its words without the green context", ptr, 4 * MIB);
	say_result("closing it", cuIpcCloseMemHandle(ptr));
	say_result("closing it again", cuIpcCloseMemHandle(again));
}

/* A context that ends, and whose memory goes with it. */
static void case_ends(void)
{
	struct exported made = ask_for((struct order){4 * MIB, 0, 1, 2});
	CUdeviceptr ptr;
	CUcontext ctx;

	CALL(cuCtxCreate(&ctx, NULL, 0, gpu.dev));
	say_result("opening in a context", OPEN(&ptr, &made));
	say_words("its words", ptr, 4 * MIB);
	CALL(cuCtxDestroy(ctx));
	CALL(cuCtxSetCurrent(gpu.ctx));
	say_result("closing it when the context has ended", cuIpcCloseMemHandle(ptr));
	say_result("opening in another one", OPEN(&ptr, &made));
	say_words("its words", ptr, 4 * MIB);
}

static void case_large(void)
{
	struct exported made = ask_for((struct order){GIB + 4 * MIB, 0, 1, 2});
	CUdeviceptr ptr;
	uint32_t word;

	say_result("opening", OPEN(&ptr, &made));
	say_words("its words", ptr, GIB + 4 * MIB);
	CALL(cuMemsetD32(ptr + GIB - 4, 3, 2));
	CALL(cuMemcpyDtoH(&word, ptr + GIB, 4));
	say("a word behind the first GiB: %u", word);
	say_result("closing it", cuIpcCloseMemHandle(ptr));
}

/* Memory of GPU 0, in a context of GPU 1; with "masked" the processes see one GPU each. */
static void case_peers(void)
{
	struct exported made = ask_for((struct order){4 * MIB, 0, 1, 2});
	CUdeviceptr ptr;
	CUcontext ctx;

	if (!getenv("CUDA_VISIBLE_DEVICES")) {
		CALL(cuDevicePrimaryCtxRetain(&ctx, 1));
		CALL(cuCtxSetCurrent(ctx));
	}
	say_result("opening memory of another GPU", OPEN(&ptr, &made));
	say_words("its words", ptr, 4 * MIB);
	say_result("setting one", cuMemsetD32(ptr, 3, 1));
	say_words("its words", ptr, 4 * MIB);
	say_result("closing it", cuIpcCloseMemHandle(ptr));
}

/* While there is memory that was freed, which cudaw keeps for later allocations. */
static void case_kept(void)
{
	struct exported made = ask_for((struct order){4 * MIB, 0, 1, 2});
	CUdeviceptr ptr;

	CALL(cuMemFree(alloc(4 * MIB)));
	say_result("opening", OPEN(&ptr, &made));
}

static const struct questions cases[] = {
	{"opened", case_opened, 1}, {"refused", case_refused, 1}, {"waits", case_waits, 1},
	{"green", case_green, 1},   {"ends", case_ends, 1},       {"large", case_large, 1},
	{"peers", case_peers, 2},   {"masked", case_peers, 1},    {"kept", case_kept, 1}};

int main(int argc, char **argv)
{
	bool masked = argc == 2 && !strcmp(argv[1], "masked");
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		step_die("ipc_memory: %s", strerror(errno));
	if (!fork()) {
		close(ends[0]);
		/* A test has these for this process. */
		unsetenv("CUDAW_SIM_COUNT");
		unsetenv("CUDAW_SIM_FAULT");
		if (masked)
			setenv("CUDA_VISIBLE_DEVICES", "0", 1);
		serve(ends[1]);
	}
	close(ends[1]);
	to_child = ends[0];
	if (masked)
		setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	return questions_ask(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
