/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU waits for the main thread, which makes CUDA calls first. It says "waits" when that is so, and goes
 * on when a byte comes on stdin; it says "through" when the GPU is, and ends with the next byte.
 *
 *	--kind 0	a host function needs a lock that the main thread holds
 *	--kind 1	a callback needs it
 *	--kind 2	a host function in a graph needs it
 *	--kind 3	a stream waits for a value in memory
 *	--kind 4	nothing waits: some host functions that take a while are always queued, until the byte comes
 *	--calls N	that it makes first
 *	--launches N	of these launch a host function as well, behind the one that waits
 *	--beside 1	and a thread launches host functions that end at once
 *	--frees 1	and a thread is in cuMemFree(), which waits for the GPU: natively that never ends [H200]
 */
#include "tests/programs/kernels.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#define BYTES (1UL << 20)

#define QUEUED 8

enum { FUNCTION, CALLBACK, GRAPH, VALUE, QUEUE };

static unsigned long kind, calls = 1, launches, beside, frees;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream stream;
static CUcontext ctx;
static CUdeviceptr freed;
static unsigned long ended;
static bool over;

static void CUDA_CB needs_lock(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

static void CUDA_CB needs_lock_too(CUstream in, CUresult status, void *arg)
{
	if (in != stream || status)
		step_die("hostwork: the callback of stream %p got %p, %d", (void *)stream,
			 (void *)in, (int)status);
	needs_lock(arg);
}

static void launch_graph(void)
{
	CUgraphExec exec;
	CUgraph graph;

	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CALL(cuLaunchHostFunc(stream, needs_lock, NULL));
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CALL(cuGraphLaunch(exec, stream));
}

static void *free_it(void *arg)
{
	CALL(cuCtxSetCurrent(ctx));
	CALL(cuMemFree_v2(freed));
	return arg;
}

static void CUDA_CB takes_a_while(void *arg)
{
	(void)arg;
	usleep(20000);
	__atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
}

static void keep_queued(void)
{
	struct pollfd told = {.fd = STDIN_FILENO, .events = POLLIN};
	unsigned long launched = 0;

	while (!poll(&told, 1, 0))
		if (launched - __atomic_load_n(&ended, __ATOMIC_SEQ_CST) < QUEUED) {
			CALL(cuLaunchHostFunc(stream, takes_a_while, NULL));
			launched++;
		} else {
			usleep(500);
		}
}

static void CUDA_CB ends_at_once(void *arg)
{
	(void)arg;
}

static void *launch_beside(void *arg)
{
	CUstream own;

	CALL(cuCtxSetCurrent(ctx));
	CALL(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
		CALL(cuLaunchHostFunc(own, ends_at_once, NULL));
		CALL(cuStreamSynchronize(own));
	}
	return arg;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"kind", &kind},
					      {"calls", &calls},
					      {"launches", &launches},
					      {"beside", &beside},
					      {"frees", &frees}};
	struct kernels kernels;
	pthread_t thread, other_thread;
	CUdeviceptr data, value;
	uint32_t *word;
	CUstream other;

	step_parse(argc, argv, options, 5);
	kernels_init(&kernels);
	ctx = kernels.ctx;
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CALL(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CALL(cuMemAlloc_v2(&data, BYTES));
	CALL(cuMemAlloc_v2(&freed, BYTES));
	CALL(cuMemHostAlloc((void **)&word, sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP));
	CALL(cuMemHostGetDevicePointer_v2(&value, word, 0));
	*word = 0;
	pthread_mutex_lock(&lock);
	if (kind == FUNCTION)
		CALL(cuLaunchHostFunc(stream, needs_lock, NULL));
	else if (kind == CALLBACK)
		CALL(cuStreamAddCallback(stream, needs_lock_too, NULL, 0));
	else if (kind == GRAPH)
		launch_graph();
	else if (kind == VALUE)
		CALL(cuStreamWaitValue32_v2(stream, value, 1, CU_STREAM_WAIT_VALUE_GEQ));
	if (frees)
		pthread_create(&thread, NULL, free_it, NULL);
	if (beside)
		pthread_create(&other_thread, NULL, launch_beside, NULL);
	printf("waits\n");
	fflush(stdout);
	if (kind == QUEUE)
		keep_queued();
	step_wait_byte();
	for (unsigned long i = 0; i < calls; i++) {
		CALL(cuMemsetD8Async(data, 1, BYTES, other));
		CALL(cuStreamSynchronize(other));
		if (i < launches)
			CALL(cuLaunchHostFunc(stream, ends_at_once, NULL));
	}
	pthread_mutex_unlock(&lock);
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	CALL(cuStreamSynchronize(stream));
	__atomic_store_n(&over, true, __ATOMIC_SEQ_CST);
	if (beside)
		pthread_join(other_thread, NULL);
	if (frees)
		pthread_join(thread, NULL);
	printf("through\n");
	fflush(stdout);
	step_wait_byte();
	return 0;
}
