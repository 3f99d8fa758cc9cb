/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and sets without a stream, beside a kernel that runs: which of them wait for the GPU. On
 * memory with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS all of them do. A step makes one call.
 *
 *	sync_memops [--plain 1] [--hold-ms N] [--steps N] [--step-ms N]
 *
 *	--plain 1	make each call on memory without the attribute too
 *	--hold-ms N	how long the kernel runs beside a call that waits
 *
 * Beside a call that is to return at once the kernel runs until that has returned, however late the
 * thread gets to it.
 */
#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>

#define WORDS 1024U
#define SIZE  (WORDS * sizeof(uint32_t))
#define PITCH 1024U

static struct kernels gpu;
static unsigned long hold_ms = 200;
static volatile uint32_t *flag; /* pinned; the kernel spins until it is not 0 */
static CUdeviceptr from;
static uint32_t host[WORDS];

static CUresult copy_dtod(CUdeviceptr to)
{
	return cuMemcpyDtoD(to, from, SIZE);
}

static CUresult copy_from(CUdeviceptr ptr)
{
	return cuMemcpyDtoD(from, ptr, SIZE);
}

static CUresult copy_any(CUdeviceptr to)
{
	return cuMemcpy(to, from, SIZE);
}

static CUresult copy_any_from(CUdeviceptr ptr)
{
	return cuMemcpy(from, ptr, SIZE);
}

static CUresult copy_peer(CUdeviceptr to)
{
	return cuMemcpyPeer(to, gpu.ctx, from, gpu.ctx, SIZE);
}

static CUresult copy_htod(CUdeviceptr to)
{
	return cuMemcpyHtoD(to, host, SIZE);
}

static CUresult copy_2d(CUdeviceptr to)
{
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = from,
			      .srcPitch = PITCH,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = to,
			      .dstPitch = PITCH,
			      .WidthInBytes = PITCH,
			      .Height = SIZE / PITCH};

	return cuMemcpy2D(&copy);
}

static CUresult copy_3d(CUdeviceptr to)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .srcDevice = from,
			      .srcPitch = PITCH,
			      .srcHeight = 2,
			      .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .dstDevice = to,
			      .dstPitch = PITCH,
			      .dstHeight = 2,
			      .WidthInBytes = PITCH,
			      .Height = 2,
			      .Depth = SIZE / PITCH / 2};

	return cuMemcpy3D(&copy);
}

static CUresult set_8(CUdeviceptr to)
{
	return cuMemsetD8(to, 7, SIZE);
}

static CUresult set_16(CUdeviceptr to)
{
	return cuMemsetD16(to, 7, SIZE / 2);
}

static CUresult set_32(CUdeviceptr to)
{
	return cuMemsetD32(to, 7, WORDS);
}

static CUresult set_rows(CUdeviceptr to)
{
	return cuMemsetD2D32(to, PITCH, 7, PITCH / 8, SIZE / PITCH);
}

static const struct {
	const char *name;
	CUresult (*make)(CUdeviceptr ptr);
} calls[] = {{"cuMemcpyDtoD to", copy_dtod}, {"cuMemcpyDtoD from", copy_from},
	     {"cuMemcpy to", copy_any},      {"cuMemcpy from", copy_any_from},
	     {"cuMemcpyPeer to", copy_peer}, {"cuMemcpyHtoD to", copy_htod},
	     {"cuMemcpy2D to", copy_2d},     {"cuMemcpy3D to", copy_3d},
	     {"cuMemsetD8 of", set_8},       {"cuMemsetD16 of", set_16},
	     {"cuMemsetD32 of", set_32},     {"cuMemsetD2D32 of", set_rows}};

#define NCALLS (sizeof(calls) / sizeof(calls[0]))

static bool waits;    /* the call is to wait for the kernel */
static bool returned; /* atomic: it has returned */

static void *end_kernel(void *arg)
{
	unsigned long left_ms = waits ? hold_ms : step_hang_s() * 1000 / 2;

	while (left_ms-- && !__atomic_load_n(&returned, __ATOMIC_RELAXED))
		step_sleep_ms(1);
	*flag = 1;
	return arg;
}

static void beside_a_kernel(size_t call, CUdeviceptr ptr, bool marked)
{
	CUdeviceptr dev;
	void *args[] = {&dev};
	pthread_t helper;
	int waited;

	*flag = 0;
	/* A copy from pageable memory always waits. */
	waits = marked || calls[call].make == copy_htod;
	__atomic_store_n(&returned, false, __ATOMIC_RELAXED);
	CALL(cuMemHostGetDevicePointer(&dev, (void *)flag, 0));
	CALL(cuLaunchKernel(gpu.spin_until, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	pthread_create(&helper, NULL, end_kernel, NULL);
	CALL(calls[call].make(ptr));
	waited = *flag != 0;
	__atomic_store_n(&returned, true, __ATOMIC_RELAXED);
	printf("%s %s memory %s\n", calls[call].name, marked ? "marked" : "plain",
	       waited ? "waits" : "returns");
	pthread_join(helper, NULL);
	CALL(cuCtxSynchronize());
}

static void set(CUdeviceptr ptr, unsigned int on)
{
	CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
}

static unsigned int get(CUdeviceptr ptr)
{
	unsigned int one = 0, of_many = 0;
	CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
	void *data = &of_many;

	CALL(cuPointerGetAttribute(&one, attribute, ptr));
	CALL(cuPointerGetAttributes(1, &attribute, &data, ptr));
	if (one != of_many)
		step_die("sync_memops: %u, and %u among many", one, of_many);
	return one;
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr ptr;

	CALL(cuMemAlloc(&ptr, size));
	return ptr;
}

int main(int argc, char **argv)
{
	unsigned long plain_too = 0;
	const struct step_option options[] = {{"plain", &plain_too}, {"hold-ms", &hold_ms}};
	CUdeviceptr plain, marked, large, again;
	unsigned int on = 1;
	CUresult result;

	step_parse(argc, argv, options, 2);
	kernels_init(&gpu);
	CALL(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	from = alloc(SIZE);
	plain = alloc(SIZE);
	marked = alloc(SIZE);
	large = alloc(4 << 20);
	set(marked + 512, 1);
	set(large, 1);
	set(plain, 1);
	set(plain, 0);
	for (unsigned long k = 0; step_more(k); k++) {
		size_t call = k % NCALLS;

		beside_a_kernel(call, k % 2 ? large : marked, true);
		if (plain_too)
			beside_a_kernel(call, plain, false);
		printf("marked: %u %u, plain: %u %u\n", get(marked), get(large + 12345), get(plain),
		       get(from));
		step_done(k);
	}
	CALL(cuMemFree(marked));
	again = alloc(SIZE);
	result = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, large);
	printf("in its place: %u, set once more: %d\n", get(again), result);
	CALL(cuMemFree(large));
	result = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, large);
	printf("after the free: %d\n", result);
	return 0;
}
