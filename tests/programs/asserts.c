/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel whose assertion fails, in a program that has not synchronised with it yet. It says
 * "asserted", and when a line comes on stdin it makes its next CUDA call, prints that call's result,
 * and then the result of a synchronisation: the context is in error from the assertion on.
 *
 *	--mib N		device memory that the program has (64)
 *	--then N	its next call: 0 synchronises, 1 copies to the host, 2 launches a kernel, 3 lets
 *			another thread make the calls of a pause, and prints their results too
 */
#include "tests/programs/kernels.h"

#include <pthread.h>

#define MIB    (1UL << 20)
#define HIT_MS 300 /* until the assertion was hit, once the stream has come to it */

/* What nvcc makes of "assert(0)", with empty texts. */
static const char assert_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".extern .func __assertfail(.param .b64 text, .param .b64 file,\n"
	"	.param .b32 line, .param .b64 function, .param .b64 size);\n"
	".global .align 1 .b8 empty[1] = {0};\n"
	".visible .entry assert_fails()\n"
	"{\n"
	"	.reg .b64 text;\n"
	"	mov.u64 text, empty;\n"
	"	cvta.global.u64 text, text;\n"
	"	{\n"
	"	.param .b64 a;\n"
	"	st.param.b64 [a+0], text;\n"
	"	.param .b64 b;\n"
	"	st.param.b64 [b+0], text;\n"
	"	.param .b32 c;\n"
	"	st.param.b32 [c+0], 1;\n"
	"	.param .b64 d;\n"
	"	st.param.b64 [d+0], text;\n"
	"	.param .b64 e;\n"
	"	st.param.b64 [e+0], 1;\n"
	"	call.uni __assertfail, (a, b, c, d, e);\n"
	"	}\n"
	"	ret;\n"
	"}\n";

enum { THEN_SYNCHRONISE, THEN_COPY, THEN_LAUNCH, THEN_DRAIN };

static void say(const char *what, CUresult result)
{
	const char *name = "unknown error";

	cuGetErrorName(result, &name);
	printf("%s: %s\n", what, name);
	fflush(stdout);
}

static void *drain(void *result)
{
	unsigned int flags;
	int active = 0;
	CUcontext ctx;

	say("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active));
	printf("it is %s\n", active ? "active" : "not active");
	say("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&ctx, 0));
	say("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0));
	say("cuCtxSetCurrent", cuCtxSetCurrent(ctx));
	*(CUresult *)result = cuCtxSynchronize();
	return NULL;
}

static CUresult in_another_thread(void)
{
	CUresult result = CUDA_SUCCESS;
	pthread_t thread;

	CALL(pthread_create(&thread, NULL, drain, &result));
	CALL(pthread_join(thread, NULL));
	return result;
}

static CUresult next_call(unsigned long then, const struct kernels *kernels, CUdeviceptr data)
{
	uint64_t words = 256;
	void *args[] = {&data, &words};
	uint32_t word;

	if (then == THEN_DRAIN)
		return in_another_thread();
	if (then == THEN_COPY)
		return cuMemcpyDtoH_v2(&word, data, sizeof(word));
	if (then == THEN_LAUNCH)
		return cuLaunchKernel(kernels->increment, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL);
	return cuCtxSynchronize();
}

static void has_come(void *come)
{
	__atomic_store_n((int *)come, 1, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
	unsigned long mib = 64, then = THEN_SYNCHRONISE;
	const struct step_option options[] = {{"mib", &mib}, {"then", &then}};
	struct kernels kernels;
	CUfunction assert_fails;
	CUdeviceptr data = 0;
	void *none[1] = {NULL};
	CUmodule module;
	int come = 0;

	step_parse(argc, argv, options, 2);
	kernels_init(&kernels);
	CALL(cuModuleLoadData(&module, assert_ptx));
	CALL(cuModuleGetFunction(&assert_fails, module, "assert_fails"));
	if (mib) {
		CALL(cuMemAlloc_v2(&data, mib * MIB));
		CALL(cuMemsetD32_v2(data, 1, mib * MIB / 4));
	}
	CALL(cuCtxSynchronize());
	CALL(cuLaunchHostFunc(NULL, has_come, &come));
	CALL(cuLaunchKernel(assert_fails, 1, 1, 1, 1, 1, 1, 0, NULL, none, NULL));
	while (!__atomic_load_n(&come, __ATOMIC_ACQUIRE))
		step_sleep_ms(1);
	step_sleep_ms(HIT_MS);
	puts("asserted");
	fflush(stdout);
	step_wait_byte();
	say("the next call", next_call(then, &kernels, data));
	say("synchronising", cuCtxSynchronize());
	return 0;
}
