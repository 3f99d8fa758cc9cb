/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/digest.h"

#define THREADS 512

#define TEXT(number)    TEXT_OF(number)
#define TEXT_OF(number) #number
#define STRIDE_WORDS    1024 /* what the block loads at once, 16 bytes a thread */
#define GRANULE_BYTES   2097152
#define CONSTANT_K1     "0x9e3779b97f4a7c15"
#define CONSTANT_K2     "0xd6e8feb86659fd93"
#define CONSTANT_K3     "0xa0761d6478bd642f"

_Static_assert(STRIDE_WORDS == THREADS * 2, "each thread loads 16 bytes");
_Static_assert(GRANULE_BYTES == VMEM_GRANULE, "the kernel's granule is vmem's");

/* clang-format off */
/* v ^= v >> @n */
#define FOLD(n)                                \
	"	shr.u64 t, v, " n ";\n"        \
	"	xor.b64 v, v, t;\n"

/* Add the word @w; key is its index times K1. */
#define ADD_WORD(w)                            \
	"	or.b64 any, any, " w ";\n"     \
	"	xor.b64 v, " w ", key;\n"      \
	FOLD("32")                             \
	"	mul.lo.u64 v, v, " CONSTANT_K2 ";\n" \
	FOLD("32")                             \
	"	mul.lo.u64 v, v, " CONSTANT_K3 ";\n" \
	FOLD("29")                             \
	"	add.u64 sum, sum, v;\n"        \
	"	mov.b64 {low, high}, v;\n"     \
	"	mad.wide.u32 mix, low, high, mix;\n"

/* Two neighbouring words; then key is that of the next pair that the thread loads. */
#define ADD_PAIR(a, b) \
	ADD_WORD(a)    \
	"	add.u64 key, key, " CONSTANT_K1 ";\n" ADD_WORD(b) "	add.u64 key, key, step;\n"

/*
 * A block of threads digests one granule, 16 bytes a thread at a time, four loads in flight. PTX
 * 6.0 and sm_50, so that any driver and device with virtual memory management can compile it.
 */
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry cudaw_digest(.param .u64 data, .param .u64 digests, .param .u64 count)\n"
	"{\n"
	"	.reg .pred p;\n"
	"	.reg .b32 thread, block, low, high;\n"
	"	.reg .b64 addr, end, out, key, step, any, sum, mix, v, t;\n"
	"	.reg .b64 a<4>, b<4>;\n"
	"	.shared .align 8 .b64 total[3];\n"
	"	ld.param.u64 addr, [data];\n"
	"	ld.param.u64 out, [digests];\n"
	"	cvta.to.global.u64 addr, addr;\n"
	"	cvta.to.global.u64 out, out;\n"
	"	mov.u32 thread, %tid.x;\n"
	"	mov.u32 block, %ctaid.x;\n"
	"	ld.param.u64 end, [count];\n"
	"	cvt.u64.u32 t, block;\n"
	"	setp.ge.u64 p, t, end;\n"
	"	@p ret;\n"
	"	setp.ne.u32 p, thread, 0;\n"
	"	@p bra cleared;\n"
	"	st.shared.u64 [total], 0;\n"
	"	st.shared.u64 [total+8], 0;\n"
	"	st.shared.u64 [total+16], 0;\n"
	"cleared:\n"
	"	bar.sync 0;\n"
	"	mul.wide.u32 t, block, " TEXT(GRANULE_BYTES) ";\n"
	"	add.u64 addr, addr, t;\n"
	"	add.u64 end, addr, " TEXT(GRANULE_BYTES) ";\n"
	"	mul.wide.u32 t, block, 24;\n"
	"	add.u64 out, out, t;\n"
	/* The thread's first word has twice its number; the next pair is a stride further on. */
	"	mul.wide.u32 t, thread, 16;\n"
	"	add.u64 addr, addr, t;\n"
	"	shr.u64 t, t, 3;\n"
	"	mul.lo.u64 key, t, " CONSTANT_K1 ";\n"
	"	mov.u64 t, " CONSTANT_K1 ";\n"
	"	mul.lo.u64 step, t, " TEXT(STRIDE_WORDS) " - 1;\n"
	"	mov.u64 any, 0;\n"
	"	mov.u64 sum, 0;\n"
	"	mov.u64 mix, 0;\n"
	"loop:\n"
	"	ld.global.v2.u64 {a0, b0}, [addr];\n"
	"	ld.global.v2.u64 {a1, b1}, [addr+8192];\n"
	"	ld.global.v2.u64 {a2, b2}, [addr+16384];\n"
	"	ld.global.v2.u64 {a3, b3}, [addr+24576];\n"
	ADD_PAIR("a0", "b0")
	ADD_PAIR("a1", "b1")
	ADD_PAIR("a2", "b2")
	ADD_PAIR("a3", "b3")
	"	add.u64 addr, addr, 32768;\n"
	"	setp.lt.u64 p, addr, end;\n"
	"	@p bra loop;\n"
	"	atom.shared.or.b64 t, [total], any;\n"
	"	atom.shared.add.u64 t, [total+8], sum;\n"
	"	atom.shared.add.u64 t, [total+16], mix;\n"
	"	bar.sync 0;\n"
	"	setp.ne.u32 p, thread, 0;\n"
	"	@p ret;\n"
	"	ld.shared.u64 any, [total];\n"
	"	ld.shared.u64 sum, [total+8];\n"
	"	ld.shared.u64 mix, [total+16];\n"
	"	st.global.u64 [out], any;\n"
	"	st.global.u64 [out+8], sum;\n"
	"	st.global.u64 [out+16], mix;\n"
	"	ret;\n"
	"}\n";
/* clang-format on */

CUresult digest_load(const struct cuda_driver *drv, CUcontext ctx, struct digest_kernel *kernel)
{
	struct digest_kernel k = {.ctx = ctx};
	CUresult error = drv->cuModuleLoadData(&k.module, ptx);

	if (error)
		return error;
	error = drv->cuModuleGetFunction(&k.function, k.module, "cudaw_digest");
	if (error)
		drv->cuModuleUnload(k.module);
	else
		*kernel = k;
	return error;
}

void digest_unload(const struct cuda_driver *drv, const struct digest_kernel *kernel)
{
	drv->cuModuleUnload(kernel->module);
}

CUresult digest_take(const struct cuda_driver *drv, const struct digest_kernel *kernel,
		     CUdeviceptr start, size_t granules, struct digest *digests, CUstream stream)
{
	uint64_t count = granules;
	void *args[] = {&start, &digests, &count};

	return drv->cuLaunchKernel(kernel->function, granules, 1, 1, THREADS, 1, 1, 0, stream, args,
				   NULL);
}
