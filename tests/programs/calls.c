/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls with pointers that no other program makes: each in every step, with data of that step,
 * and what came of it is read back.
 *
 *	calls [--all 1] [--steps N] [--step-ms N]
 *
 * What the device or the driver lacks is left out, which is said first. With --all 1 it is an
 * error.
 */
#include "tests/programs/calls_launches.h"
#include "tests/programs/calls_memory.h"
#include "tests/programs/calls_tensor_map.h"

#define VERSION 13000 /* of CUDA, whose calls these are */

/* clang-format off */
static const struct part parts[] = {
	{"copies in any direction", 0, NULL, copy_any,
	 {"cuMemcpy", "cuMemcpyAsync"}},
	{"copies between contexts", 0, NULL, copy_peer,
	 {"cuMemcpyPeer", "cuMemcpyPeerAsync"}},
	{"copies of rectangles and boxes", 0, NULL, copy_shapes,
	 {"cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy3D", "cuMemcpy3DPeer",
	  "cuMemcpy3DPeerAsync"}},
	{"batches of copies", 0, NULL, copy_batch,
	 {"cuMemcpyBatchAsync"}},
	{"copies of arrays", 0, make_array, copy_arrays,
	 {"cuMemcpyDtoA", "cuMemcpyAtoD", "cuMemcpyHtoA", "cuMemcpyAtoH"}},
	{"sets of rows", 0, NULL, set_rows,
	 {"cuMemsetD2D8", "cuMemsetD2D16", "cuMemsetD2D32", "cuMemsetD2D8Async",
	  "cuMemsetD2D16Async", "cuMemsetD2D32Async"}},
	{"operations on memory", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, NULL,
	 write_and_wait,
	 {"cuStreamWriteValue32", "cuStreamWaitValue32", "cuStreamWriteValue64",
	  "cuStreamWaitValue64", "cuStreamBatchMemOp"}},
	{"hints", 0, NULL, give_hints,
	 {"cuMemPrefetchAsync", "cuMemAdvise"}},
	{"structs with pointers", 0, load_lists, launch_struct,
	 {"cuLaunchKernel"}},
	{"packed launches", 0, NULL, launch_packed,
	 {"cuLaunchKernel"}},
	{"cooperative launches", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, NULL, launch_cooperative,
	 {"cuLaunchCooperativeKernel"}},
	{"clusters", CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, load_clusters, launch_clusters,
	 {"cuLaunchKernelEx"}},
	{"linked kernels", 0, link_kernel, launch_linked,
	 {"cuLinkCreate", "cuLinkAddData", "cuLinkComplete", "cuLinkDestroy"}},
	{"nodes of any type", 0, make_nodes, launch_nodes,
	 {"cuGraphAddNode"}},
	{"tensor maps", CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, encode_map, load_tiles,
	 {"cuTensorMapEncodeTiled"}},
};
/* clang-format on */

#define NPARTS (sizeof(parts) / sizeof(parts[0]))

static int left_out[NPARTS];

static int is_there(const struct part *part)
{
	int value = 1;

	if (part->attribute)
		CALL(cuDeviceGetAttribute(&value, part->attribute, gpu.dev));
	for (size_t i = 0; i < sizeof(part->calls) / sizeof(part->calls[0]); i++) {
		void *function = NULL;

		if (part->calls[i] &&
		    (cuGetProcAddress(part->calls[i], &function, VERSION, 0, NULL) || !function))
			return 0;
	}
	return value > 0;
}

static void setup(unsigned long all)
{
	kernels_init(&gpu);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemAlloc(&a, SIZE));
	CALL(cuMemAlloc(&b, SIZE));
	clear();
	for (size_t i = 0; i < NPARTS; i++) {
		left_out[i] = !is_there(&parts[i]);
		if (left_out[i])
			printf("left out: %s\n", parts[i].name);
		else if (parts[i].prepare)
			parts[i].prepare();
		if (left_out[i] && all)
			step_die("calls: there are no %s here", parts[i].name);
	}
}

static void make_step(uint32_t step)
{
	void *args[] = {&a, &word_count, &step};

	first = step * 2654435761U;
	CALL(cuLaunchKernel(gpu.iota, 4, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	for (size_t i = 0; i < NPARTS; i++) {
		clear();
		if (!left_out[i])
			parts[i].make(step);
	}
}

int main(int argc, char **argv)
{
	unsigned long all = 0, steps;
	const struct step_option options[] = {{"all", &all}};

	step_parse(argc, argv, options, 1);
	setup(all);
	for (steps = 0; step_more(steps); steps++) {
		make_step((uint32_t)steps);
		step_done(steps);
	}
	report_hints();
	printf("calls: %lu steps, every word right\n", steps);
	return 0;
}
