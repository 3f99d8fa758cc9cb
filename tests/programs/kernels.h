/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KERNELS_H
#define CUDAW_KERNELS_H
/*
 * The kernels of the driver-API programs, as PTX text that the driver compiles for any GPU since
 * Turing, so that the programs are built by gcc alone:
 *
 *	increment(uint32_t *data, uint64_t n)			data[i] += 1
 *	iota(uint32_t *data, uint64_t n, uint32_t seed)		data[i] = seed * 2654435761 + i
 *	checksum(const uint32_t *data, uint64_t n, uint64_t *out)	*out += data[i] * (2 * i + 1)
 *	spin_until(volatile uint32_t *flag)			until *flag != 0
 *
 * All loop with the grid's stride, so the grid may have any size. A driver that simulates a GPU
 * knows them by name; its checksum sets *out instead of adding, so clear *out first.
 */
#include <cuda.h>

#include "tests/programs/step.h"
/* The index of the calling thread's first word (i), its stride, and the common parameters. */
#define KERNEL_BEGIN                                                     \
	"	.reg .pred done;\n"                                            \
	"	.reg .b32 cta, cta_size, thread, ctas, value;\n"               \
	"	.reg .b64 words, count, i, stride, addr, wide, weight, sum;\n" \
	"	ld.param.u64 words, [data];\n"                                 \
	"	ld.param.u64 count, [n];\n"                                    \
	"	cvta.to.global.u64 words, words;\n"                            \
	"	mov.u32 cta, %ctaid.x;\n"                                      \
	"	mov.u32 cta_size, %ntid.x;\n"                                  \
	"	mov.u32 thread, %tid.x;\n"                                     \
	"	mov.u32 ctas, %nctaid.x;\n"                                    \
	"	mul.wide.u32 i, cta, cta_size;\n"                              \
	"	cvt.u64.u32 wide, thread;\n"                                   \
	"	add.u64 i, i, wide;\n"                                         \
	"	mul.wide.u32 stride, ctas, cta_size;\n"

/* Around the body of the loop over i; the body finds the address of its word in addr. */
#define KERNEL_LOOP                      \
	"loop:\n"                        \
	"	setp.ge.u64 done, i, count;\n" \
	"	@done bra end;\n"              \
	"	shl.b64 addr, i, 2;\n"         \
	"	add.u64 addr, words, addr;\n"
#define KERNEL_NEXT                \
	"	add.u64 i, i, stride;\n" \
	"	bra loop;\n"             \
	"end:\n"

static const char kernels_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"

	".visible .entry increment(.param .u64 data, .param .u64 n)\n"
	"{\n" KERNEL_BEGIN KERNEL_LOOP "	ld.global.u32 value, [addr];\n"
	"	add.u32 value, value, 1;\n"
	"	st.global.u32 [addr], value;\n" KERNEL_NEXT "	ret;\n"
	"}\n"

	".visible .entry iota(.param .u64 data, .param .u64 n, .param .u32 seed)\n"
	"{\n"
	"	.reg .b32 first, index;\n" KERNEL_BEGIN "	ld.param.u32 first, [seed];\n"
	"	mul.lo.u32 first, first, 2654435761;\n" KERNEL_LOOP "	cvt.u32.u64 index, i;\n"
	"	add.u32 value, first, index;\n"
	"	st.global.u32 [addr], value;\n" KERNEL_NEXT "	ret;\n"
	"}\n"

	".visible .entry checksum(.param .u64 data, .param .u64 n, .param .u64 out)\n"
	"{\n"
	"	.reg .b64 result;\n" KERNEL_BEGIN "	ld.param.u64 result, [out];\n"
	"	cvta.to.global.u64 result, result;\n"
	"	mov.u64 sum, 0;\n" KERNEL_LOOP "	ld.global.u32 value, [addr];\n"
	"	cvt.u64.u32 wide, value;\n"
	"	shl.b64 weight, i, 1;\n"
	"	add.u64 weight, weight, 1;\n"
	"	mad.lo.u64 sum, wide, weight, sum;\n" KERNEL_NEXT
	"	red.global.add.u64 [result], sum;\n"
	"	ret;\n"
	"}\n"

	".visible .entry spin_until(.param .u64 flag)\n"
	"{\n"
	"	.reg .pred still;\n"
	"	.reg .b32 value;\n"
	"	.reg .b64 addr;\n"
	"	ld.param.u64 addr, [flag];\n"
	"	cvta.to.global.u64 addr, addr;\n"
	"again:\n"
	"	ld.volatile.global.u32 value, [addr];\n"
	"	setp.eq.u32 still, value, 0;\n"
	"	@still bra again;\n"
	"	ret;\n"
	"}\n";

struct kernels {
	CUdevice dev;
	CUcontext ctx;
	CUmodule module;
	CUfunction increment, iota, checksum, spin_until;
};

/* Make device 0's primary context current and load the kernels. */
static inline void kernels_init(struct kernels *k)
{
	CALL(cuInit(0));
	CALL(cuDeviceGet(&k->dev, 0));
	CALL(cuDevicePrimaryCtxRetain(&k->ctx, k->dev));
	CALL(cuCtxSetCurrent(k->ctx));
	CALL(cuModuleLoadData(&k->module, kernels_ptx));
	CALL(cuModuleGetFunction(&k->increment, k->module, "increment"));
	CALL(cuModuleGetFunction(&k->iota, k->module, "iota"));
	CALL(cuModuleGetFunction(&k->checksum, k->module, "checksum"));
	CALL(cuModuleGetFunction(&k->spin_until, k->module, "spin_until"));
}

/* A grid that fills any GPU; the kernels loop over what is left. */
static inline void kernels_launch(CUfunction kernel, CUstream stream, void **args)
{
	CALL(cuLaunchKernel(kernel, 2048, 1, 1, 256, 1, 1, 0, stream, args, NULL));
}

#endif
