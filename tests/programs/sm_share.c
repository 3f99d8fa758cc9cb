/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What could give a job a share of the multiprocessors (SMs) without changing its program: a probe, for a GPU.
 *
 *	sm_share [--percent N] [--seconds N]		green contexts in one process: who is held to the share, and
 *							what a program would notice
 *	sm_share --green 1|0 [--percent N] [--seconds N]	only the rate of kernels in a green context (1) or in the
 *							primary one (0), to be run several times at once,
 *							natively and under MPS
 *
 * Rates are kernels a second; each keeps all SMs busy, and does the same work. The second form waits for a byte on
 * stdin, so that several begin together:
 *
 *	(sleep 3; echo) | sm_share --green 1 --percent 50 --seconds 10 &		# two of them
 *	CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 sm_share --green 0 < /dev/null	# under nvidia-cuda-mps-control -d
 */
#include "tests/programs/kernels.h"

#define BLOCKS  4224 /* 32 on each of 132 SMs */
#define THREADS 256
#define ROUNDS  20000U

static const char burn_ptx[] = ".version 6.4\n"
			       ".target sm_75\n"
			       ".address_size 64\n"
			       ".visible .entry burn(.param .u32 rounds)\n"
			       "{\n"
			       "	.reg .pred more;\n"
			       "	.reg .b32 left, value;\n"
			       "	ld.param.u32 left, [rounds];\n"
			       "	mov.u32 value, %tid.x;\n"
			       "again:\n"
			       "	mad.lo.u32 value, value, 1664525, 1013904223;\n"
			       "	sub.u32 left, left, 1;\n"
			       "	setp.ne.u32 more, left, 0;\n"
			       "	@more bra again;\n"
			       "	setp.eq.u32 more, value, 1;\n"
			       "	@more trap;\n"
			       "	ret;\n"
			       "}\n";

static unsigned long percent = 25, seconds = 3, green_only = 2;
static CUdevice dev;
static CUcontext primary, green_ctx;
static CUgreenCtx green;
static CUfunction burn;
static CUstream primary_stream, green_stream;

static const char *name_of(CUresult result)
{
	const char *name = "unknown";

	cuGetErrorName(result, &name);
	return name;
}

static CUresult launch(CUstream stream)
{
	unsigned int rounds = ROUNDS;
	void *args[] = {&rounds};

	return cuLaunchKernel(burn, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, args, NULL);
}

/* Kernels a second in @stream, a few at a time. */
static void say_rate(const char *what, CUstream stream)
{
	double begin, end;
	unsigned long n = 0;
	CUresult result = launch(stream);

	if (!result)
		result = cuStreamSynchronize(stream);
	begin = step_seconds();
	end = begin;
	while (!result && end - begin < (double)seconds) {
		for (int i = 0; i < 4 && !result; i++, n++)
			result = launch(stream);
		if (!result)
			result = cuStreamSynchronize(stream);
		end = step_seconds();
	}
	if (result)
		printf("%-60s %s\n", what, name_of(result));
	else
		printf("%-60s %.1f\n", what, (double)n / (end - begin));
	fflush(stdout);
}

/* A green context of so many percent of the SMs. */
static void make_green(void)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	unsigned int groups = 1, wanted;

	CALL(cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM));
	wanted = (unsigned int)(all.sm.smCount * percent / 100);
	CALL(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, wanted ? wanted : 1));
	CALL(cuDevResourceGenerateDesc(&desc, &part, 1));
	CALL(cuGreenCtxCreate(&green, desc, dev, CU_GREEN_CTX_DEFAULT_STREAM));
	CALL(cuCtxFromGreenCtx(&green_ctx, green));
	CALL(cuGreenCtxStreamCreate(&green_stream, green, CU_STREAM_NON_BLOCKING, 0));
	printf("%u of %u SMs asked for, %u given\n", wanted, all.sm.smCount, part.sm.smCount);
}

/* What a program would notice if its primary context were replaced. */
static void say_differences(void)
{
	CUcontext found;
	CUstream stream;
	CUdeviceptr data;
	CUresult result;

	CALL(cuCtxGetCurrent(&found));
	printf("cuCtxGetCurrent gives the primary context: %s\n", found == primary ? "yes" : "no");
	CALL(cuDevicePrimaryCtxRetain(&found, dev));
	printf("cuDevicePrimaryCtxRetain gives the current one: %s\n",
	       found == green_ctx ? "yes" : "no");
	CALL(cuDevicePrimaryCtxRelease(dev));
	result = cuMemAlloc(&data, 1 << 20);
	printf("cuMemAlloc: %s\n", name_of(result));
	if (!result) {
		CALL(cuCtxSetCurrent(primary));
		printf("  its use in the primary context: %s\n",
		       name_of(cuMemsetD8(data, 1, 1 << 20)));
		CALL(cuCtxSetCurrent(green_ctx));
	}
	result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	if (result)
		printf("cuStreamCreate: %s\n", name_of(result));
	else
		say_rate("in a stream of cuStreamCreate while the green one is current", stream);
}

static void probe(void)
{
	say_rate("primary context", primary_stream);
	say_rate("a stream of the green context, the primary one current", green_stream);
	CALL(cuCtxSetCurrent(green_ctx));
	say_rate("a stream of the green context, which is current", green_stream);
	say_rate("the default stream, the green context current", CU_STREAM_LEGACY);
	say_rate("the per-thread stream, the green context current", CU_STREAM_PER_THREAD);
	say_rate("a stream of the primary context, the green one current", primary_stream);
	say_differences();
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"percent", &percent}, {"seconds", &seconds}, {"green", &green_only}};
	CUmodule module;

	step_parse(argc, argv, options, 3);
	CALL(cuInit(0));
	CALL(cuDeviceGet(&dev, 0));
	CALL(cuDevicePrimaryCtxRetain(&primary, dev));
	CALL(cuCtxSetCurrent(primary));
	CALL(cuModuleLoadData(&module, burn_ptx));
	CALL(cuModuleGetFunction(&burn, module, "burn"));
	CALL(cuStreamCreate(&primary_stream, CU_STREAM_NON_BLOCKING));
	if (green_only)
		make_green();
	if (green_only == 2) {
		probe();
		return 0;
	}
	step_wait_byte();
	if (green_only)
		CALL(cuCtxSetCurrent(green_ctx));
	say_rate(green_only ? "green context" : "primary context",
		 green_only ? green_stream : primary_stream);
	return 0;
}
