/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that aborts when its watchdog thread hangs, as PyTorch does (ProcessGroupNCCL): the
 * main thread captures, launches kernels and records an event behind each. The watchdog asks for the
 * events, and counts its rounds. The monitor ends the program if the count stands still for so many
 * rounds of its own: what holds up the whole process holds up the monitor, too.
 *
 *	--asks-ms N	between two rounds of the watchdog
 *	--patience N	rounds of the monitor, which sleeps for 10 ms in each
 *	--words N	of device memory
 *	--spin-ms N	of each step a kernel runs so long
 *
 * The last event stays in the list until a newer one is done, so that the watchdog always asks.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>

#define EVENTS 16 /* that may be in the list */
#define SEED   5u

static unsigned long asks_ms = 10, patience = 200, words = 1 << 20, spin_ms;
static struct kernels kernels;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUevent events[EVENTS];
static unsigned long recorded, passed; /* under lock: the list is [passed, recorded) */
static unsigned long heartbeat;
static uint32_t *flag; /* mapped host memory: lets the spinning kernel end */
static bool stop;

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void exchange_mode(CUstreamCaptureMode mode, CUstreamCaptureMode old)
{
	CUstreamCaptureMode found = mode;

	CALL(cuThreadExchangeStreamCaptureMode(&found));
	if (found != old)
		step_die("watchdog: the capture mode was %d, should be %d", found, old);
}

/* As the runtime does for cudaGetDevice(), and PyTorch before it sets a device back. */
static void check_device(void)
{
	CUcontext ctx = NULL;
	unsigned int flags;
	CUdevice dev = -1;
	int active = 0;

	CALL(cuCtxGetCurrent(&ctx));
	CALL(cuCtxGetDevice(&dev));
	CALL(cuDevicePrimaryCtxGetState(kernels.dev, &flags, &active));
	CALL(cuCtxSetCurrent(kernels.ctx));
	if (ctx != kernels.ctx || dev != kernels.dev || !active)
		step_die("watchdog: context %p, device %d, active %d", (void *)ctx, dev, active);
}

static void check_current(CUcontext wanted)
{
	CUcontext ctx = (CUcontext)&kernels;

	CALL(cuCtxGetCurrent(&ctx));
	if (ctx != wanted)
		step_die("watchdog: context %p, should be %p", (void *)ctx, (void *)wanted);
}

/* What guards do that make a context current for a while. */
static void check_stack(void)
{
	CUcontext ctx = NULL;

	CALL(cuCtxPushCurrent(kernels.ctx));
	CALL(cuCtxSetCurrent(NULL));
	check_current(kernels.ctx);
	CALL(cuCtxPopCurrent(&ctx));
	check_current(NULL);
	if (ctx != kernels.ctx)
		step_die("watchdog: popped %p, should be %p", (void *)ctx, (void *)kernels.ctx);
	CALL(cuCtxSetCurrent(kernels.ctx));
}

/*
 * True if @event has passed, asked as PyTorch asks. The mode lets other threads capture meanwhile:
 * in the mode that the thread had, the query would break their captures.
 */
static bool has_passed(CUevent event)
{
	CUresult result;

	check_device();
	check_stack();
	exchange_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
	step_sleep_ms(asks_ms / 2);
	result = cuEventQuery(event);
	exchange_mode(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (result && result != CUDA_ERROR_NOT_READY)
		step_die("watchdog: cuEventQuery: error %d", (int)result);
	return !result;
}

static void ask_for_one(void)
{
	unsigned long at, end;

	pthread_mutex_lock(&lock);
	at = passed;
	end = recorded;
	pthread_mutex_unlock(&lock);
	if (at == end || !has_passed(events[at % EVENTS]) || at + 1 == end)
		return;
	pthread_mutex_lock(&lock);
	passed++;
	pthread_mutex_unlock(&lock);
}

static void *watch(void *arg)
{
	(void)arg;
	check_current(NULL);
	CALL(cuCtxSetCurrent(kernels.ctx));
	while (!stopped()) {
		ask_for_one();
		__atomic_add_fetch(&heartbeat, 1, __ATOMIC_RELAXED);
		step_sleep_ms(asks_ms / 2);
	}
	return NULL;
}

static void *monitor(void *arg)
{
	unsigned long last = 0, rounds = 0;

	(void)arg;
	while (!stopped()) {
		unsigned long now = __atomic_load_n(&heartbeat, __ATOMIC_RELAXED);

		rounds = now == last ? rounds + 1 : 0;
		if (rounds > patience)
			step_die("watchdog: it hangs for more than %lu rounds", patience);
		last = now;
		step_sleep_ms(10);
	}
	return NULL;
}

/* The list has room for one more event. */
static bool has_room(void)
{
	bool room;

	pthread_mutex_lock(&lock);
	room = recorded - passed < EVENTS;
	pthread_mutex_unlock(&lock);
	return room;
}

static void launch_spinning(CUstream stream)
{
	CUdeviceptr ptr;
	void *args[] = {&ptr};

	*flag = 0;
	CALL(cuMemHostGetDevicePointer_v2(&ptr, flag, 0));
	CALL(cuLaunchKernel(kernels.spin_until, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

/* In the mode that forbids the queries of threads that have not changed theirs. */
static void capture(CUstream stream, void **args)
{
	CUgraph graph;

	CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	kernels_launch(kernels.increment, stream, args);
	step_sleep_ms(asks_ms);
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphDestroy(graph));
}

static void step(CUstream stream, CUdeviceptr data)
{
	uint64_t count = words;
	void *args[] = {&data, &count};

	capture(stream, args);
	while (!has_room())
		step_sleep_ms(1);
	if (spin_ms)
		launch_spinning(stream);
	kernels_launch(kernels.increment, stream, args);
	CALL(cuEventRecord(events[recorded % EVENTS], stream));
	pthread_mutex_lock(&lock);
	recorded++;
	pthread_mutex_unlock(&lock);
	if (spin_ms) {
		printf("spinning\n");
		fflush(stdout);
		step_sleep_ms(spin_ms);
		__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	}
	CALL(cuStreamSynchronize(stream));
}

static void verify(CUdeviceptr data, unsigned long steps)
{
	uint32_t *host = malloc(words * sizeof(*host));

	if (!host)
		step_die("watchdog: no memory");
	CALL(cuMemcpyDtoH_v2(host, data, words * sizeof(*host)));
	for (unsigned long i = 0; i < words; i++)
		if (host[i] != SEED * 2654435761u + (uint32_t)(i + steps))
			step_wrong("watchdog: word %lu is %#x", i, host[i]);
	free(host);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"asks-ms", &asks_ms},
		{"patience", &patience},
		{"words", &words},
		{"spin-ms", &spin_ms},
	};
	pthread_t watchdog, watched;
	uint32_t seed = SEED;
	unsigned long k;
	CUdeviceptr data;
	CUstream stream;

	step_parse(argc, argv, options, sizeof(options) / sizeof(options[0]));
	kernels_init(&kernels);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < EVENTS; i++)
		CALL(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	CALL(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	CALL(cuMemAlloc_v2(&data, words * sizeof(uint32_t)));
	kernels_launch(kernels.iota, stream, (void *[]){&data, &(uint64_t){words}, &seed});
	CALL(pthread_create(&watchdog, NULL, watch, NULL));
	CALL(pthread_create(&watched, NULL, monitor, NULL));
	for (k = 0; step_more(k); k++) {
		step(stream, data);
		step_done(k);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	CALL(pthread_join(watchdog, NULL));
	CALL(pthread_join(watched, NULL));
	verify(data, k);
	printf("watchdog: every word right\n");
	return 0;
}
