/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pointers in a variable of a module, as libraries hand tables to their kernels: a kernel adds one
 * to what each of them points to, in every step. One of them is changed in every step, one is
 * overwritten by the GPU with what is no pointer, and must stay so. They are copied there by calls
 * that say that they come from the host, and by calls that do not. What the latter copy from GPU
 * memory arrives as it is, whatever it looks like.
 *
 *	symbols [--steps N] [--step-ms N]
 */
#include "tests/programs/kernels.h"

#define TARGETS 4
#define SPOILED 0x1111111111111111UL

static const char symbols_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .global .align 8 .u64 table[6];\n"

	/* chase(uint32_t **list, uint64_t n): *list[i] += 1, by one thread */
	".visible .entry chase(.param .u64 list, .param .u64 n)\n"
	"{\n"
	"	.reg .pred done;\n"
	"	.reg .b32 thread, value;\n"
	"	.reg .b64 at, count, i, to;\n"
	"	ld.param.u64 at, [list];\n"
	"	ld.param.u64 count, [n];\n"
	"	cvta.to.global.u64 at, at;\n"
	"	mov.u32 thread, %tid.x;\n"
	"	setp.ne.u32 done, thread, 0;\n"
	"	@done bra end;\n"
	"	mov.u64 i, 0;\n"
	"loop:\n"
	"	setp.ge.u64 done, i, count;\n"
	"	@done bra end;\n"
	"	ld.global.u64 to, [at];\n"
	"	cvta.to.global.u64 to, to;\n"
	"	ld.global.u32 value, [to];\n"
	"	add.u32 value, value, 1;\n"
	"	st.global.u32 [to], value;\n"
	"	add.u64 at, at, 8;\n"
	"	add.u64 i, i, 1;\n"
	"	bra loop;\n"
	"end:\n"
	"	ret;\n"
	"}\n";

/* Let the GPU write @word, and copy it from there to @to. */
static void copy_from_gpu(CUdeviceptr to, CUdeviceptr word)
{
	CUdeviceptr from;

	CALL(cuMemAlloc_v2(&from, sizeof(word)));
	CALL(cuMemsetD32_v2(from, (unsigned int)word, 1));
	CALL(cuMemsetD32_v2(from + 4, (unsigned int)(word >> 32), 1));
	CALL(cuCtxSynchronize());
	CALL(cuMemcpy(to, from, sizeof(word)));
	CALL(cuMemFree_v2(from));
}

static void expect(CUdeviceptr at, CUdeviceptr put, const char *what)
{
	CUdeviceptr found;

	CALL(cuMemcpyDtoH_v2(&found, at, sizeof(found)));
	if (found != put)
		step_wrong("symbols: %s became %#llx", what, found);
}

int main(int argc, char **argv)
{
	struct {
		char padding[4], bytes[2 * sizeof(CUdeviceptr)];
	} odd __attribute__((aligned(8)));
	CUdeviceptr table, targets[TARGETS];
	uint64_t count = TARGETS;
	CUdeviceptr *pinned;
	void *args[] = {&table, &count};
	uint32_t words[TARGETS];
	size_t size;
	CUmodule module;
	CUfunction chase;
	struct kernels kernels;
	unsigned long steps;

	step_parse(argc, argv, NULL, 0);
	kernels_init(&kernels);
	CALL(cuModuleLoadData(&module, symbols_ptx));
	CALL(cuModuleGetFunction(&chase, module, "chase"));
	CALL(cuModuleGetGlobal_v2(&table, &size, module, "table"));
	CALL(cuMemAllocHost((void **)&pinned, sizeof(*pinned)));
	for (int i = 0; i < TARGETS; i++) {
		CALL(cuMemAlloc_v2(&targets[i], 4096UL << 4 * i));
		CALL(cuMemsetD32_v2(targets[i], 0, 1024));
	}
	/* From where no pointer would be aligned. */
	memcpy(odd.bytes, targets, sizeof(odd.bytes));
	CALL(cuMemcpyHtoD_v2(table, odd.bytes, sizeof(odd.bytes)));
	CALL(cuMemcpy(table + 2 * sizeof(*targets), (CUdeviceptr)&targets[2], sizeof(*targets)));
	CALL(cuMemcpyHtoD_v2(table + sizeof(targets), targets, sizeof(*targets)));
	CALL(cuMemsetD8_v2(table + sizeof(targets), 0x11, sizeof(*targets)));
	copy_from_gpu(table + sizeof(targets) + sizeof(*targets), targets[0]);
	for (steps = 0; step_more(steps); steps++) {
		/* Ask for it again, as the runtime does; the last target moves on by a word. */
		CUdeviceptr last = targets[TARGETS - 1] + steps % 1024 * sizeof(uint32_t);

		*pinned = last;
		CALL(cuModuleGetGlobal_v2(&table, &size, module, "table"));
		if (steps % 2)
			CALL(cuMemcpyHtoDAsync_v2(table + (TARGETS - 1) * sizeof(last), &last,
						  sizeof(last), NULL));
		else
			CALL(cuMemcpyAsync(table + (TARGETS - 1) * sizeof(last),
					   (CUdeviceptr)pinned, sizeof(last), NULL));
		CALL(cuLaunchKernel(chase, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
		CALL(cuCtxSynchronize());
		step_done(steps);
	}
	for (int i = 0; i < TARGETS; i++) {
		uint32_t want = i < TARGETS - 1 ? steps : (steps + 1023) / 1024;

		CALL(cuMemcpyDtoH_v2(&words[i], targets[i], sizeof(words[i])));
		if (words[i] != want)
			step_wrong("symbols: target %d was counted to %u, not to %u", i, words[i],
				   want);
	}
	expect(table + sizeof(targets), SPOILED, "the GPU's word");
	expect(table + sizeof(targets) + sizeof(*targets), targets[0], "what came from GPU memory");
	CALL(cuModuleUnload(module));
	printf("symbols: %lu steps, every word right\n", steps);
	return 0;
}
