/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one driver call after another, each when a line comes on stdin, so that any of them can be
 * the first one after a pause: says "ready NAME", waits, says "calling NAME", makes the call, says
 * "returned NAME", and verifies its memory. What a call needs is made before "ready".
 */
#include "tests/programs/kernels.h"

#include <pthread.h>

#define WORDS 300000UL
#define BYTES (WORDS * sizeof(uint32_t))
#define SEED  7u

static struct kernels kernels;
static CUstream stream;
static CUevent begin, end;
static CUgraphExec exec;
static CUdeviceptr data;    /* word i is SEED * 2654435761 + i + steps */
static CUdeviceptr scratch; /* of the same size; its contents do not matter */
static CUdeviceptr spare;   /* made by prepare_spare() */
static uint32_t steps;
static uint32_t *host; /* pinned */
static uint64_t words = WORDS;
static CUmodule module;
static CUcontext other;
static CUevent shared; /* which another process may record */
static CUevent doomed; /* made by prepare_doomed() */

static uint32_t word_at(size_t i)
{
	return SEED * 2654435761u + (uint32_t)i + steps;
}

static void verify(const char *after)
{
	CALL(cuMemcpyDtoH_v2(host, data, BYTES));
	for (size_t i = 0; i < WORDS; i++)
		if (host[i] != word_at(i))
			step_wrong("first_calls: word %zu is %#x after %s", i, host[i], after);
}

static void launch(void)
{
	void *args[] = {&data, &words};

	CALL(cuLaunchKernel(kernels.increment, 64, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	steps++;
}

static CUgraph capture(void)
{
	CUgraph graph;

	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch();
	steps--; /* only captured */
	CALL(cuStreamEndCapture(stream, &graph));
	return graph;
}

static void prepare_spare(void)
{
	CALL(cuMemAlloc_v2(&spare, BYTES));
}

static void prepare_module(void)
{
	CALL(cuModuleLoadData(&module, kernels_ptx));
}

static void prepare_context(void)
{
	CALL(cuCtxCreate_v4(&other, NULL, 0, kernels.dev));
	CALL(cuCtxSetCurrent(kernels.ctx));
}

static void prepare_doomed(void)
{
	CALL(cuEventCreate(&doomed, CU_EVENT_DEFAULT));
	CALL(cuEventRecord(doomed, stream));
}

static void prepare_shared(void)
{
	CALL(cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CALL(cuEventRecord(shared, stream));
}

static void learn_current(void)
{
	CUcontext ctx;

	CALL(cuCtxGetCurrent(&ctx));
}

static void event_elapsed(void)
{
	float ms = -1;

	CALL(cuEventElapsedTime(&ms, begin, end));
	if (ms < 0)
		step_die("first_calls: %f ms passed between two events", ms);
}

static void event_new(void)
{
	CUevent event;

	CALL(cuEventCreate(&event, CU_EVENT_DEFAULT));
	CALL(cuEventDestroy_v2(event));
}

static void stream_new(void)
{
	CUstream new;

	CALL(cuStreamCreate(&new, CU_STREAM_NON_BLOCKING));
	CALL(cuStreamDestroy_v2(new));
}

static void graph_new(void)
{
	CUgraph graph = capture();
	CUgraphExec new;

	CALL(cuGraphInstantiateWithFlags(&new, graph, 0));
	CALL(cuGraphExecDestroy(new));
	CALL(cuGraphDestroy(graph));
}

static void graph_launch(void)
{
	CALL(cuGraphLaunch(exec, stream));
	steps++;
}

static void copy_in(void)
{
	for (size_t i = 0; i < WORDS; i++)
		host[i] = word_at(i);
	CALL(cuMemcpyHtoD_v2(data, host, BYTES));
}

static void copy_across(void)
{
	CALL(cuMemcpyDtoD_v2(scratch, data, BYTES));
	CALL(cuMemcpyDtoD_v2(data, scratch, BYTES));
}

static void mem_info(void)
{
	size_t free, total;

	CALL(cuMemGetInfo_v2(&free, &total));
	if (total - free < 2 * BYTES)
		step_die("first_calls: %zu of %zu bytes are free", free, total);
}

static void address_range(void)
{
	CUdeviceptr start;
	size_t size;

	CALL(cuMemGetAddressRange_v2(&start, &size, data + 5));
	if (start != data || size != BYTES)
		step_die("first_calls: %zu bytes from another address", size);
}

static void pointer_attribute(void)
{
	CUcontext ctx;

	CALL(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, data));
	if (ctx != kernels.ctx)
		step_die("first_calls: another context");
}

static void mem_alloc_async(void)
{
	CUdeviceptr ptr;

	CALL(cuMemAllocAsync(&ptr, BYTES, stream));
	CALL(cuMemFreeAsync(ptr, stream));
}

static void host_alloc(void)
{
	void *memory;

	CALL(cuMemHostAlloc(&memory, 4096, 0));
	CALL(cuMemFreeHost(memory));
}

static void host_register(void)
{
	static char memory[1 << 16] __attribute__((aligned(4096)));

	CALL(cuMemHostRegister_v2(memory, sizeof(memory), 0));
	CALL(cuMemHostUnregister(memory));
}

static void module_load(void)
{
	CUfunction function;

	prepare_module();
	CALL(cuModuleGetFunction(&function, module, "increment"));
	CALL(cuModuleUnload(module));
}

static void context_new(void)
{
	prepare_context();
	CALL(cuCtxDestroy_v2(other));
}

static void check_popped(CUcontext wanted)
{
	CUcontext ctx = NULL;

	CALL(cuCtxPopCurrent_v2(&ctx));
	if (ctx != wanted)
		step_die("first_calls: another context is popped");
}

static void context_push(void)
{
	CALL(cuCtxPushCurrent_v2(kernels.ctx));
	check_popped(kernels.ctx);
	CALL(cuCtxPushCurrent_v2(kernels.ctx));
	CALL(cuCtxSetCurrent(NULL));
}

static void context_current(void)
{
	CUcontext ctx;

	CALL(cuCtxGetCurrent(&ctx));
	if (ctx != kernels.ctx)
		step_die("first_calls: another context is current");
}

static void context_device(void)
{
	CUdevice dev = -1;

	CALL(cuCtxGetDevice(&dev));
	if (dev != kernels.dev)
		step_die("first_calls: the context is of device %d", dev);
}

static void check_other(void)
{
	CUcontext owner = NULL;
	CUdeviceptr ptr;

	context_device();
	CALL(cuMemAlloc_v2(&ptr, 4096));
	CALL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	if (owner != other)
		step_die("first_calls: the memory is of another context");
	CALL(cuMemFree_v2(ptr));
}

/* The context that is set at rest holds for the calls after the resume. */
static void context_other(void)
{
	CALL(cuCtxSetCurrent(other));
	check_other();
	CALL(cuCtxSetCurrent(kernels.ctx));
	CALL(cuCtxDestroy_v2(other));
}

/* So does one that is pushed, and the one below is current behind it. */
static void context_push_other(void)
{
	CALL(cuCtxPushCurrent_v2(other));
	check_other();
	check_popped(other);
	context_current();
	CALL(cuCtxDestroy_v2(other));
}

static void context_set_other(void)
{
	CALL(cuCtxSetCurrent(other));
	CALL(cuCtxSetCurrent(kernels.ctx));
}

static void primary_state(void)
{
	unsigned int flags = 99;
	int active = -1;

	CALL(cuDevicePrimaryCtxGetState(kernels.dev, &flags, &active));
	if (flags == 99 || active != 1)
		step_die("first_calls: flags %u, active %d", flags, active);
}

static void exchange(CUstreamCaptureMode mode, CUstreamCaptureMode old)
{
	CUstreamCaptureMode found = mode;

	CALL(cuThreadExchangeStreamCaptureMode(&found));
	if (found != old)
		step_die("first_calls: the mode was %d, should be %d", found, old);
}

static void capture_mode(void)
{
	exchange(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL);
	exchange(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* The mode that is set at rest holds for the calls after the resume. */
static void capture_mode_kept(void)
{
	CUgraph graph;

	exchange(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CALL(cuEventQuery(begin));
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphDestroy(graph));
	exchange(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void primary_retain(void)
{
	CUcontext ctx;

	CALL(cuDevicePrimaryCtxRetain(&ctx, kernels.dev));
	CALL(cuDevicePrimaryCtxRelease_v2(kernels.dev));
}

static void device_attribute(void)
{
	int value;

	CALL(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, kernels.dev));
}

static void error_name(void)
{
	const char *name;

	CALL(cuGetErrorName(CUDA_ERROR_UNKNOWN, &name));
}

static void driver_version(void)
{
	int version;

	CALL(cuDriverGetVersion(&version));
}

static void *thread_main(void *arg)
{
	CALL(cuCtxSetCurrent(kernels.ctx));
	launch();
	CALL(cuStreamSynchronize(stream));
	return arg;
}

static void thread_new(void)
{
	pthread_t thread;

	CALL(pthread_create(&thread, NULL, thread_main, NULL));
	CALL(pthread_join(thread, NULL));
}

#define ONE_CALL(name, call)   \
	static void name(void) \
	{                      \
		CALL(call);    \
	}
ONE_CALL(context_synchronize, cuCtxSynchronize())
ONE_CALL(stream_synchronize, cuStreamSynchronize(stream))
ONE_CALL(stream_query, cuStreamQuery(stream))
ONE_CALL(stream_wait_event, cuStreamWaitEvent(stream, end, 0))
ONE_CALL(event_synchronize, cuEventSynchronize(end))
ONE_CALL(event_query, cuEventQuery(end))
ONE_CALL(event_query_shared, cuEventQuery(shared))
ONE_CALL(event_destroy, cuEventDestroy_v2(doomed))
ONE_CALL(event_record, cuEventRecord(end, stream))
ONE_CALL(copy_out, cuMemcpyDtoH_v2(host, data, BYTES))
ONE_CALL(copy_out_async, cuMemcpyDtoHAsync_v2(host, data, BYTES, stream))
ONE_CALL(set, cuMemsetD32_v2(scratch, 1, WORDS))
ONE_CALL(set_async, cuMemsetD8Async(scratch, 2, BYTES, stream))
ONE_CALL(mem_free, cuMemFree_v2(spare))
ONE_CALL(module_unload, cuModuleUnload(module))
ONE_CALL(context_destroy, cuCtxDestroy_v2(other))
ONE_CALL(context_set, cuCtxSetCurrent(kernels.ctx))
ONE_CALL(init, cuInit(0))

static void mem_alloc(void)
{
	prepare_spare();
	mem_free();
}

static const struct {
	const char *name;
	void (*call)(void);
	void (*prepare)(void); /* may be NULL */
} table[] = {
#define FIRST(call)               \
	{                         \
#call, call, NULL \
	}
	FIRST(context_synchronize),
	FIRST(stream_synchronize),
	FIRST(stream_query),
	FIRST(stream_wait_event),
	FIRST(event_synchronize),
	FIRST(event_query),
	{"event_query_shared", event_query_shared, prepare_shared},
	{"event_destroy", event_destroy, prepare_doomed},
	FIRST(event_record),
	FIRST(event_elapsed),
	FIRST(event_new),
	FIRST(stream_new),
	FIRST(launch),
	FIRST(graph_launch),
	FIRST(graph_new),
	FIRST(copy_in),
	FIRST(copy_out),
	FIRST(copy_out_async),
	FIRST(copy_across),
	FIRST(set),
	FIRST(set_async),
	FIRST(mem_alloc),
	{"mem_free", mem_free, prepare_spare},
	FIRST(mem_info),
	FIRST(address_range),
	FIRST(pointer_attribute),
	FIRST(mem_alloc_async),
	FIRST(host_alloc),
	FIRST(host_register),
	FIRST(module_load),
	{"module_unload", module_unload, prepare_module},
	FIRST(context_new),
	{"context_destroy", context_destroy, prepare_context},
	{"context_other", context_other, prepare_context},
	{"context_set_other", context_set_other, prepare_context},
	{"context_set", context_set, learn_current},
	FIRST(context_push),
	{"context_push_other", context_push_other, prepare_context},
	{"context_current", context_current, learn_current},
	{"context_device", context_device, context_device},
	FIRST(primary_state),
	FIRST(capture_mode),
	FIRST(capture_mode_kept),
	FIRST(primary_retain),
	FIRST(device_attribute),
	FIRST(thread_new),
	FIRST(init),
	FIRST(error_name),
	FIRST(driver_version),
};

static void setup(void)
{
	uint32_t seed = SEED;
	void *args[] = {&data, &words, &seed};
	CUgraph graph;

	kernels_init(&kernels);
	CALL(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CALL(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CALL(cuEventCreate(&end, CU_EVENT_DEFAULT));
	CALL(cuMemAlloc_v2(&data, BYTES));
	CALL(cuMemAlloc_v2(&scratch, BYTES));
	CALL(cuMemHostAlloc((void **)&host, BYTES, 0));
	CALL(cuEventRecord(begin, stream));
	CALL(cuLaunchKernel(kernels.iota, 64, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	CALL(cuEventRecord(end, stream));
	graph = capture();
	CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CALL(cuGraphDestroy(graph));
}

static void say(const char *what, const char *name)
{
	printf("%s %s\n", what, name);
	fflush(stdout);
}

static void await_line(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		step_die("first_calls: nobody is there any more");
}

int main(int argc, char **argv)
{
	step_parse(argc, argv, NULL, 0);
	setup();
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].prepare)
			table[i].prepare();
		CALL(cuCtxSynchronize());
		say("ready", table[i].name);
		await_line();
		say("calling", table[i].name);
		table[i].call();
		say("returned", table[i].name);
		CALL(cuStreamSynchronize(stream));
		verify(table[i].name);
	}
	printf("first_calls: every word right\n");
	fflush(stdout);
	await_line();
	return 0;
}
