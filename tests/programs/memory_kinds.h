/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_KINDS_H
#define CUDAW_MEMORY_KINDS_H
/*
 * What the kinds of memory_kinds.c share, and their GPU code. A kind has words somewhere; word i is
 * word_after(i, k) after step k, which the frame reads back and checks each time.
 */
#include <cuda.h>

#include "tests/programs/kernels.h"

#include <stdbool.h>
#include <unistd.h>

#define WORDS 16384U
#define SIZE  (WORDS * sizeof(uint32_t))

struct kind {
	const char *name;
	void (*start)(void);            /* before the first CUDA call; NULL: nothing to do */
	void (*setup)(void);            /* the memory, and in it what words_start() gives */
	void (*step)(unsigned long k);  /* step k, from 1; NULL: increment(data) */
	void (*read)(uint32_t *target); /* NULL: a copy of data */
	void (*finish)(void);
};

static struct kernels gpu;
static CUmodule own; /* the module of kinds_ptx */
static CUstream stream;
static CUdeviceptr data;       /* the kind's words, where they lie in one piece */
static uint64_t words = WORDS; /* how many the kind has */

__attribute__((noreturn)) static inline void skip(const char *why)
{
	printf("skip: %s\n", why);
	exit(77);
}

static inline void need(CUdevice_attribute attribute, const char *what)
{
	int value = 0;

	CALL(cuDeviceGetAttribute(&value, attribute, gpu.dev));
	if (!value)
		skip(what);
}

static inline bool simulated(void)
{
	char name[64] = "";

	CALL(cuDeviceGetName(name, sizeof(name), gpu.dev));
	return !strcmp(name, "Simulated GPU");
}

static inline uint32_t word_after(uint64_t i, unsigned long steps)
{
	return (uint32_t)(7 * 2654435761U + i + steps);
}

/* Host memory with the words as they are before the first step. */
static inline uint32_t *words_start(void)
{
	uint32_t *start = malloc(words * sizeof(*start));

	if (!start)
		step_die("memory_kinds: out of memory");
	for (uint64_t i = 0; i < words; i++)
		start[i] = word_after(i, 0);
	return start;
}

/* The copy from pageable memory may end after the call, and the stream does not wait for it. */
static inline void upload(CUdeviceptr ptr, const void *host, size_t size)
{
	CALL(cuMemcpyHtoD_v2(ptr, host, size));
	CALL(cuCtxSynchronize());
}

static inline void upload_start(CUdeviceptr ptr)
{
	uint32_t *start = words_start();

	upload(ptr, start, words * sizeof(*start));
	free(start);
}

static inline void increment(CUdeviceptr ptr, uint64_t count)
{
	void *args[] = {&ptr, &count};

	kernels_launch(gpu.increment, stream, args);
}

static inline CUmemAllocationProp device_prop(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.dev},
	};
}

static inline void allow(CUdeviceptr ptr, size_t size)
{
	CUmemAccessDesc desc = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.dev},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	CALL(cuMemSetAccess(ptr, size, &desc, 1));
}

/*
 * The kernels of the kinds, and their variables:
 *
 *	add_texels(uint32_t *data, uint64_t n, CUtexObject texture, uint32_t width)
 *		data[i] += texel (i % width, i / width)
 *	increment_surface(CUsurfObject surface, uint64_t n, uint32_t width)
 *		element (i % width, i / width) += 1
 */
#define PER_ELEMENT                                            \
	"	.reg .pred done;\n"                                  \
	"	.reg .b32 cta, ctas, index, x, y, columns, value;\n" \
	"	.reg .b64 i, count, stride, wide, object;\n"         \
	"	mov.u32 cta, %ctaid.x;\n"                            \
	"	mov.u32 ctas, %ntid.x;\n"                            \
	"	mul.wide.u32 i, cta, ctas;\n"                        \
	"	mov.u32 index, %tid.x;\n"                            \
	"	cvt.u64.u32 wide, index;\n"                          \
	"	add.u64 i, i, wide;\n"                               \
	"	mov.u32 cta, %nctaid.x;\n"                           \
	"	mul.wide.u32 stride, cta, ctas;\n"                   \
	"	ld.param.u64 count, [n];\n"                          \
	"	ld.param.u32 columns, [width];\n"                    \
	"loop:\n"                                              \
	"	setp.ge.u64 done, i, count;\n"                       \
	"	@done bra end;\n"                                    \
	"	cvt.u32.u64 index, i;\n"                             \
	"	rem.u32 x, index, columns;\n"                        \
	"	div.u32 y, index, columns;\n"

static const char managed_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .global .attribute(.managed) .align 4 .b32 managed_words[16384];\n";

static const char kinds_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .global .align 4 .b32 global_words[12288];\n"
	".visible .const .align 4 .b32 constant_words[4096];\n"

	".visible .entry add_texels(.param .u64 data, .param .u64 n, .param .u64 texture,"
	" .param .u32 width)\n"
	"{\n"
	"	.reg .b32 texel, other<3>;\n"
	"	.reg .b64 addr;\n" PER_ELEMENT "	ld.param.u64 object, [texture];\n"
	"	tex.2d.v4.u32.s32 {texel, other0, other1, other2}, [object, {x, y}];\n"
	"	ld.param.u64 addr, [data];\n"
	"	cvta.to.global.u64 addr, addr;\n"
	"	shl.b64 wide, i, 2;\n"
	"	add.u64 addr, addr, wide;\n"
	"	ld.global.u32 value, [addr];\n"
	"	add.u32 value, value, texel;\n"
	"	st.global.u32 [addr], value;\n" KERNEL_NEXT "	ret;\n"
	"}\n"

	".visible .entry increment_surface(.param .u64 surface, .param .u64 n, .param .u32 width)\n"
	"{\n" PER_ELEMENT "	ld.param.u64 object, [surface];\n"
	"	shl.b32 x, x, 2;\n"
	"	suld.b.2d.b32.trap {value}, [object, {x, y}];\n"
	"	add.u32 value, value, 1;\n"
	"	sust.b.2d.b32.trap [object, {x, y}], {value};\n" KERNEL_NEXT "	ret;\n"
	"}\n";

/*
 * What only a GPU can run:
 *
 *	heap_new(uint64_t bytes, uint64_t *out)		*out = malloc(bytes)
 *	heap_copy(uint32_t *target, uint64_t n, uint64_t source)	target[i] = source[i]
 *	say(uint32_t k)					printf("kernel %u\n", k)
 *
 * The host cannot reach what the device's malloc() gives, but other kernels can.
 */
static const char device_ptx[] __attribute__((unused)) =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".extern .func (.param .b64 result) malloc (.param .b64 size);\n"
	".extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 args);\n"
	".global .align 1 .b8 format[11] = {107, 101, 114, 110, 101, 108, 32, 37, 117, 10, 0};\n"

	".visible .entry heap_new(.param .u64 bytes, .param .u64 out)\n"
	"{\n"
	"	.reg .b64 size, result, addr;\n"
	"	.param .b64 asked;\n"
	"	.param .b64 given;\n"
	"	ld.param.u64 size, [bytes];\n"
	"	st.param.b64 [asked], size;\n"
	"	call.uni (given), malloc, (asked);\n"
	"	ld.param.b64 result, [given];\n"
	"	ld.param.u64 addr, [out];\n"
	"	cvta.to.global.u64 addr, addr;\n"
	"	st.global.u64 [addr], result;\n"
	"	ret;\n"
	"}\n"

	".visible .entry heap_copy(.param .u64 data, .param .u64 n, .param .u64 source)\n"
	"{\n"
	"	.reg .b64 from;\n" KERNEL_BEGIN "	ld.param.u64 from, [source];\n"
	"	cvta.to.global.u64 from, from;\n" KERNEL_LOOP "	shl.b64 wide, i, 2;\n"
	"	add.u64 wide, from, wide;\n"
	"	ld.global.u32 value, [wide];\n"
	"	st.global.u32 [addr], value;\n" KERNEL_NEXT "	ret;\n"
	"}\n"

	".visible .entry say(.param .u32 k)\n"
	"{\n"
	"	.local .align 8 .b8 args[8];\n"
	"	.reg .b32 value;\n"
	"	.reg .b64 addr;\n"
	"	.param .b64 what;\n"
	"	.param .b64 with;\n"
	"	.param .b32 length;\n"
	"	ld.param.u32 value, [k];\n"
	"	mov.u64 addr, args;\n"
	"	st.local.u32 [addr], value;\n"
	"	cvta.local.u64 addr, addr;\n"
	"	st.param.b64 [with], addr;\n"
	"	mov.u64 addr, format;\n"
	"	cvta.global.u64 addr, addr;\n"
	"	st.param.b64 [what], addr;\n"
	"	call.uni (length), vprintf, (what, with);\n"
	"	ret;\n"
	"}\n";

#endif
