/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pointers in a variable of a module, as libraries hand tables to their kernels: a kernel adds one
 * to what each of them points to, in every step. One of them is changed in every step, one is
 * overwritten by the GPU with what is no pointer, and must stay so. They are copied there by calls
 * that say that they come from the host, and by calls that do not.
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
	".visible .global .align 8 .u64 table[5];\n"

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

int main(int argc, char **argv)
{
	CUdeviceptr table, targets[TARGETS], spoiled = 0;
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
	CALL(cuMemcpyHtoD_v2(table, targets, 2 * sizeof(*targets)));
	CALL(cuMemcpy(table + 2 * sizeof(*targets), (CUdeviceptr)&targets[2], sizeof(*targets)));
	CALL(cuMemcpyHtoD_v2(table + sizeof(targets), targets, sizeof(*targets)));
	CALL(cuMemsetD8_v2(table + sizeof(targets), 0x11, sizeof(*targets)));
	for (steps = 0; step_more(steps); steps++) {
		/* Ask for it again, as the runtime does, and let the last target move on by a word. */
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
			step_die("symbols: target %d was counted to %u, not to %u", i, words[i],
				 want);
	}
	CALL(cuMemcpyDtoH_v2(&spoiled, table + sizeof(targets), sizeof(spoiled)));
	if (spoiled != SPOILED)
		step_die("symbols: the GPU's word became %#llx", spoiled);
	CALL(cuModuleUnload(module));
	printf("symbols: %lu steps, every word right\n", steps);
	return 0;
}
