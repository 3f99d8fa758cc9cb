/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated driver's work: streams, events, callbacks, kernels, capture and graphs. */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static volatile uint32_t *flag;

static void open_with_flag(void)
{
	open_context();
	ok(cu.cuMemHostAlloc((void **)&flag, 4096, 0));
}

static void raise_flag(void)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

START_TEST(test_stream_runs_behind)
{
	CUstream s;
	CUevent before, after;
	CUdeviceptr p;
	uint32_t *host;
	float ms;

	open_with_flag();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuMemHostAlloc((void **)&host, 4096, 0));
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&before, 0));
	ok(cu.cuEventCreate(&after, 0));
	ok(cu.cuEventRecord(before, s));
	ok(launch("spin_until", s, (uint64_t)flag, 0, 0));
	ok(launch("fill", s, p, 1024, 41));
	ok(launch("increment", s, p, 1024, 0));
	ok(cu.cuMemcpyDtoHAsync_v2(host, p, 4096, s));
	ok(cu.cuEventRecord(after, s));
	fails(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	fails(cu.cuEventQuery(after), CUDA_ERROR_NOT_READY);
	ok(cu.cuEventSynchronize(before));
	usleep(20000);
	ck_assert_uint_eq(host[1023], 0);
	/* TSan does not see the flag, but the lock that this takes before the worker does. */
	fails(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	raise_flag();
	ok(cu.cuEventSynchronize(after));
	ck_assert_uint_eq(host[1023], 42);
	ok(cu.cuEventElapsedTime_v2(&ms, before, after));
	ck_assert_float_ge(ms, 20);
	ok(cu.cuStreamQuery(s));
	ok(cu.cuStreamDestroy_v2(s));
	fails(cu.cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* A copy from pageable memory may be overwritten as soon as the call returns. */
START_TEST(test_pageable_copy_is_done_on_return)
{
	uint32_t *host = malloc(4096);
	CUdeviceptr p;
	CUstream s;

	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	host[7] = 5;
	ok(cu.cuMemcpyHtoDAsync_v2(p, host, 4096, s));
	host[7] = 6;
	ck_assert_uint_eq(word_at(p + 28), 5);
	free(host);
}
END_TEST

START_TEST(test_legacy_stream_orders_blocking_streams)
{
	CUstream blocking, free_running;
	CUdeviceptr p;

	open_with_flag();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ok(cu.cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
	ok(launch("spin_until", blocking, (uint64_t)flag, 0, 0));
	/* Were the set not held back, the increment would come after it. */
	ok(cu.cuMemsetD32_v2(p, 1, 1));
	usleep(20000);
	ok(launch("increment", free_running, p, 1, 0));
	ok(cu.cuStreamSynchronize(free_running));
	fails(cu.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	ok(cu.cuStreamQuery_ptsz(NULL));
	raise_flag();
	ok(cu.cuStreamSynchronize(NULL));
	ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

START_TEST(test_wait_event_orders_streams)
{
	CUstream a, b;
	CUdeviceptr p;
	CUevent e;

	open_with_flag();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	ok(launch("spin_until", a, (uint64_t)flag, 0, 0));
	ok(launch("fill", a, p, 1, 10));
	ok(cu.cuEventRecord(e, a));
	ok(cu.cuStreamWaitEvent(b, e, 0));
	ok(launch("increment", b, p, 1, 0));
	usleep(10000);
	raise_flag();
	ok(cu.cuStreamSynchronize(b));
	ck_assert_uint_eq(word_at(p), 11);
}
END_TEST

static CUresult inner;

static void host_function(void *data)
{
	inner = cu.cuCtxGetCurrent(&(CUcontext){NULL});
	*(int *)data += 1;
}

static void callback(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	*(int *)data += status == CUDA_SUCCESS ? 10 : 100;
}

START_TEST(test_host_functions)
{
	int calls = 0;

	open_context();
	ok(cu.cuLaunchHostFunc(NULL, host_function, &calls));
	ok(cu.cuStreamAddCallback(NULL, callback, &calls, 0));
	ok(cu.cuCtxSynchronize());
	ck_assert_int_eq(calls, 11);
	ck_assert_int_eq(inner, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

START_TEST(test_kernels)
{
	uint64_t sum, expected = 0, list[2];
	CUdeviceptr p, out, lists;

	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuMemAlloc_v2(&out, 8));
	ok(cu.cuMemAlloc_v2(&lists, sizeof(list)));
	ok(launch("iota", NULL, p, 1024, 3));
	list[0] = p;
	list[1] = p + 4;
	ok(cu.cuMemcpyHtoD_v2(lists, list, sizeof(list)));
	ok(launch("chase", NULL, lists, 2, 0));
	ok(launch("checksum", NULL, p, 1024, out));
	ok(cu.cuMemcpyDtoH_v2(&sum, out, sizeof(sum)));
	for (uint64_t i = 0; i < 1024; i++)
		expected += (uint32_t)(3 * 2654435761u + i + (i < 2)) * (2 * i + 1);
	ck_assert_uint_eq(sum, expected);
}
END_TEST

START_TEST(test_modules)
{
	CUlibrary library;
	CUdeviceptr table;
	CUkernel kernel;
	CUfunction f;
	CUmodule m;
	size_t offset, size;
	const char *name;

	open_context();
	ok(cu.cuModuleLoadData(&m, ".entry filler(\n.entry iota("));
	fails(cu.cuModuleGetFunction(&f, m, "fill"), CUDA_ERROR_NOT_FOUND);
	fails(cu.cuModuleGetFunction(&f, m, "filler"), CUDA_ERROR_NOT_FOUND);
	ok(cu.cuModuleGetFunction(&f, m, "iota"));
	ok(cu.cuFuncGetName(&name, f));
	ck_assert_str_eq(name, "iota");
	ok(cu.cuFuncGetParamInfo(f, 2, &offset, &size));
	ck_assert_uint_eq(offset, 16);
	ck_assert_uint_eq(size, 4);
	fails(cu.cuFuncGetParamInfo(f, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuModuleGetGlobal_v2(&table, &size, m, "table"), CUDA_ERROR_NOT_FOUND);
	ok(cu.cuModuleUnload(m));
	fails(cu.cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE);
	ok(cu.cuModuleGetGlobal_v2(&table, &size, module, "table"));
	ck_assert_uint_eq(size, 1024);
	ck_assert_uint_eq(word_at(table + 1020), 0);

	ok(cu.cuLibraryLoadData(&library, IMAGE, NULL, NULL, 0, NULL, NULL, 0));
	ok(cu.cuLibraryGetKernel(&kernel, library, "fill"));
	ok(cu.cuKernelGetFunction(&f, kernel));
	ok(cu.cuLaunchKernelEx(&(CUlaunchConfig){1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0}, f,
			       (void *[]){&table, &(uint64_t){256}, &(uint32_t){77}}, NULL));
	ck_assert_uint_eq(word_at(table + 1020), 77);
	ok(cu.cuLibraryUnload(library));
}
END_TEST

START_TEST(test_launch_by_buffer)
{
	struct {
		CUdeviceptr data;
		uint64_t n;
		uint32_t value;
	} args = {0, 4, 9};
	size_t size = 20;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUfunction f;

	open_context();
	ok(cu.cuMemAlloc_v2(&args.data, 16));
	ok(cu.cuModuleGetFunction(&f, module, "fill"));
	ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	ck_assert_uint_eq(word_at(args.data + 12), 9);
	size = 16;
	fails(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
	      CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(test_graph_replays)
{
	CUstream s, side;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p;
	CUevent fork, join;

	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuMemsetD32_v2(p, 0, 1024));
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cu.cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&fork, 0));
	ok(cu.cuEventCreate(&join, 0));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(launch("increment", s, p, 1, 0));
	ok(cu.cuEventRecord(fork, s));
	ok(cu.cuStreamWaitEvent(side, fork, 0));
	ok(launch("increment", side, p, 2, 0));
	ok(cu.cuEventRecord(join, side));
	ok(cu.cuStreamWaitEvent(s, join, 0));
	ok(cu.cuStreamEndCapture(s, &graph));
	ok(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cu.cuGraphDestroy(graph));
	ck_assert_uint_eq(word_at(p), 0);
	for (int i = 0; i < 3; i++)
		ok(cu.cuGraphLaunch(exec, s));
	ok(cu.cuGraphExecDestroy(exec));
	ok(cu.cuStreamSynchronize(s));
	ck_assert_uint_eq(word_at(p), 6);
	ck_assert_uint_eq(word_at(p + 4), 3);
	ok(launch("increment", side, p, 1, 0));
	ok(cu.cuStreamSynchronize(side));
	ck_assert_uint_eq(word_at(p), 7);
}
END_TEST

START_TEST(test_capture_forbids_unsafe_calls)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status;
	CUstream s;
	CUgraph graph;
	CUdeviceptr p;

	open_context();
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	fails(cu.cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
	      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	/* A thread in relaxed mode may; it asks for the mode and gets the old one back. */
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuStreamIsCapturing(s, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	fails(cu.cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cu.cuStreamIsCapturing(s, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	fails(launch("increment", s, p, 1, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fails(cu.cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(cu.cuCtxSynchronize());

	ok(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	fails(cu.cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	fails(cu.cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

/* A wait for the context is refused in all modes. The free of a small allocation waits as well. */
START_TEST(test_waits_beside_a_capture)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p, q;
	CUevent event;
	CUstream s;
	CUgraph graph;

	open_context();
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuMemAlloc_v2(&q, 4096));
	ok(cu.cuStreamBeginCapture_v2(s, _i));
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ok(cu.cuMemFree_v2(p));
	ok(cu.cuEventQuery(event));
	fails(cu.cuMemFreeAsync(q, s), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuStreamEndCapture(s, &graph));
	ok(cu.cuStreamBeginCapture_v2(s, _i));
	fails(cu.cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	fails(cu.cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ok(cu.cuStreamBeginCapture_v2(s, _i));
	fails(cu.cuEventQuery(event), _i == CU_STREAM_CAPTURE_MODE_RELAXED
					      ? CUDA_SUCCESS
					      : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}
END_TEST

START_TEST(test_stream_ordered_allocation)
{
	size_t before;
	CUdeviceptr p;
	CUstream s;

	open_with_flag();
	before = free_memory();
	ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(launch("spin_until", s, (uint64_t)flag, 0, 0));
	ok(cu.cuMemAllocAsync(&p, MIB, s));
	ok(launch("fill", s, p, 16, 1));
	ok(cu.cuMemFreeAsync(p, s));
	ck_assert_uint_eq(free_memory(), before - MIB);
	raise_flag();
	ok(cu.cuStreamSynchronize(s));
	ck_assert_uint_eq(free_memory(), before);
}
END_TEST

static void *use_own_stream(void *arg)
{
	CUdeviceptr p = *(CUdeviceptr *)arg;

	ok(cu.cuCtxSetCurrent(primary));
	for (int i = 0; i < 100; i++) {
		ok(cu.cuMemsetD32_v2_ptds(p, (unsigned int)i, 64));
		ok(cu.cuStreamSynchronize_ptsz(NULL));
	}
	ck_assert_uint_eq(word_at(p), 99);
	return NULL;
}

START_TEST(test_threads_have_streams_of_their_own)
{
	CUdeviceptr p[4];
	pthread_t threads[4];
	CUstream held;

	open_with_flag();
	ok(cu.cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	ok(launch("spin_until", held, (uint64_t)flag, 0, 0));
	for (int i = 0; i < 4; i++) {
		ok(cu.cuMemAlloc_v2(&p[i], 4096));
		pthread_create(&threads[i], NULL, use_own_stream, &p[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	raise_flag();
	ok(cu.cuCtxSynchronize());
}
END_TEST

START_TEST(test_context_destroy)
{
	CUcontext ctx, current;
	unsigned int flags;
	CUdeviceptr p;
	size_t before;
	CUstream s;
	int active;

	open_context();
	before = free_memory();
	ok(cu.cuCtxCreate_v4(&ctx, NULL, 0, 0));
	ok(cu.cuMemAlloc_v2(&p, 4 * MIB));
	ok(cu.cuStreamCreate(&s, 0));
	ok(cu.cuMemsetD32Async(p, 1, 1024, s));
	ck_assert_uint_eq(free_memory(), before - 64 * MIB - 4 * MIB);
	ok(cu.cuCtxDestroy_v2(ctx));
	ok(cu.cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, primary);
	ck_assert_uint_eq(free_memory(), before);
	fails(cu.cuCtxDestroy_v2(ctx), CUDA_ERROR_INVALID_CONTEXT);
	fails(cu.cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
	ok(cu.cuDevicePrimaryCtxRelease_v2(0));
	ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
}
END_TEST

START_TEST(test_get_proc_address)
{
	CUdriverProcAddressQueryResult status;
	void *f;

	open_driver();
	ok(cu.cuGetProcAddress_v2("cuMemAlloc", &f, 13000, 0, &status));
	ck_assert_ptr_eq(f, (void *)cu.cuMemAlloc_v2);
	ok(cu.cuGetProcAddress_v2("cuGraphLaunch", &f, 12000,
				  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	ck_assert_ptr_eq(f, (void *)cu.cuGraphLaunch_ptsz);
	ok(cu.cuGetProcAddress_v2("cuCtxSynchronize", &f, 12000, 0, &status));
	ck_assert_ptr_eq(f, (void *)cu.cuCtxSynchronize);
	ok(cu.cuGetProcAddress_v2("cuCtxSynchronize", &f, 13000, 0, &status));
	ck_assert_ptr_ne(f, (void *)cu.cuCtxSynchronize);
	fails(cu.cuGetProcAddress_v2("cuCheckpointProcessLock", &f, 12000, 0, &status),
	      CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	fails(cu.cuGetProcAddress_v2("", &f, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ck_assert_ptr_null(f);
}
END_TEST

START_TEST(test_copies_wait_while_held)
{
	static char hold[] = "/tmp/sim-hold-XXXXXX";
	int fd = mkstemp(hold);
	CUdeviceptr p;
	void *host;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
	setenv("CUDAW_SIM_HOLD_IN", hold, 1);
	open_context();
	ok(cu.cuMemAlloc_v2(&p, 4096));
	ok(cu.cuMemHostAlloc(&host, 4096, 0));
	ok(cu.cuMemsetD8_v2(p, 1, 4096));
	ok(cu.cuMemcpyHtoDAsync_v2(p, host, 4096, NULL));
	ok(cu.cuStreamSynchronize(NULL));
	ok(cu.cuMemcpyHtoDAsync_v2(p, host, 4096, NULL));
	usleep(20000);
	fails(cu.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	unlink(hold);
	ok(cu.cuStreamSynchronize(NULL));
}
END_TEST

static void *synchronise(void *ctx)
{
	ok(cu.cuCtxSetCurrent(ctx));
	ok(cu.cuCtxSynchronize());
	return NULL;
}

START_TEST(test_calls_wait_while_held)
{
	static char hold[] = "/tmp/sim-hold-XXXXXX";
	int fd = mkstemp(hold);
	char held[64];
	pthread_t thread;
	CUcontext ctx;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
	snprintf(held, sizeof(held), "%s.%d", hold, (int)getpid());
	setenv("CUDAW_SIM_HOLD_CALL", hold, 1);
	setenv("CUDAW_SIM_HELD_CALL", "cuCtxSynchronize", 1);
	open_context();
	ok(cu.cuCtxGetCurrent(&ctx));
	ok(cu.cuCtxSynchronize());
	ck_assert_int_ne(access(held, F_OK), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, synchronise, ctx), 0);
	while (access(held, F_OK))
		usleep(1000);
	/* Other calls go on. */
	ok(cu.cuCtxGetCurrent(&ctx));
	ck_assert_int_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
	unlink(hold);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	unlink(held);
}
END_TEST

START_TEST(test_copy_rate)
{
	CUdeviceptr p;
	CUevent start, end;
	void *host;
	float ms;

	setenv("CUDAW_SIM_COPY_GBPS", "0.1", 1);
	open_context();
	ok(cu.cuMemAlloc_v2(&p, 10000000));
	ok(cu.cuMemHostAlloc(&host, 10000000, 0));
	ok(cu.cuEventCreate(&start, 0));
	ok(cu.cuEventCreate(&end, 0));
	ok(cu.cuEventRecord(start, NULL));
	ok(cu.cuMemcpyHtoDAsync_v2(p, host, 10000000, NULL));
	ok(cu.cuEventRecord(end, NULL));
	ok(cu.cuEventSynchronize(end));
	ok(cu.cuEventElapsedTime_v2(&ms, start, end));
	ck_assert_float_ge(ms, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: work");
	TCase *tcase = tcase_create("work");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_stream_runs_behind);
	tcase_add_test(tcase, test_pageable_copy_is_done_on_return);
	tcase_add_test(tcase, test_legacy_stream_orders_blocking_streams);
	tcase_add_test(tcase, test_wait_event_orders_streams);
	tcase_add_test(tcase, test_host_functions);
	tcase_add_test(tcase, test_kernels);
	tcase_add_test(tcase, test_modules);
	tcase_add_test(tcase, test_launch_by_buffer);
	tcase_add_test(tcase, test_graph_replays);
	tcase_add_test(tcase, test_capture_forbids_unsafe_calls);
	tcase_add_loop_test(tcase, test_waits_beside_a_capture, CU_STREAM_CAPTURE_MODE_GLOBAL,
			    CU_STREAM_CAPTURE_MODE_RELAXED + 1);
	tcase_add_test(tcase, test_stream_ordered_allocation);
	tcase_add_test(tcase, test_threads_have_streams_of_their_own);
	tcase_add_test(tcase, test_context_destroy);
	tcase_add_test(tcase, test_get_proc_address);
	tcase_add_test(tcase, test_copies_wait_while_held);
	tcase_add_test(tcase, test_calls_wait_while_held);
	tcase_add_test(tcase, test_copy_rate);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
