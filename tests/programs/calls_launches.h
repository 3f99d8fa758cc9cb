/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CALLS_LAUNCHES_H
#define CUDAW_CALLS_LAUNCHES_H
/* Launches, a kernel that is linked, and graphs of nodes that one call adds; see calls.h. */
#include <stddef.h>

#include "tests/programs/calls.h"

static const char lists_ptx[] = ".version 6.4\n"
				".target sm_75\n"
				".address_size 64\n"

				/*
	 * add_three(struct { uint32_t *p[4]; uint64_t n; }): p[3][i] = p[0][i] + p[1][i] + p[2][i]
	 */
				".visible .entry add_three(.param .align 8 .b8 lists[40])\n"
				"{\n"
				"	.reg .pred done;\n"
				"	.reg .b32 thread, threads, value, more;\n"
				"	.reg .b64 from<3>, to, count, i, stride, offset, at;\n"
				"	ld.param.u64 from0, [lists];\n"
				"	ld.param.u64 from1, [lists+8];\n"
				"	ld.param.u64 from2, [lists+16];\n"
				"	ld.param.u64 to, [lists+24];\n"
				"	ld.param.u64 count, [lists+32];\n"
				"	cvta.to.global.u64 from0, from0;\n"
				"	cvta.to.global.u64 from1, from1;\n"
				"	cvta.to.global.u64 from2, from2;\n"
				"	cvta.to.global.u64 to, to;\n"
				"	mov.u32 thread, %tid.x;\n"
				"	mov.u32 threads, %ntid.x;\n"
				"	cvt.u64.u32 i, thread;\n"
				"	cvt.u64.u32 stride, threads;\n"
				"loop:\n"
				"	setp.ge.u64 done, i, count;\n"
				"	@done bra end;\n"
				"	shl.b64 offset, i, 2;\n"
				"	add.u64 at, from0, offset;\n"
				"	ld.global.u32 value, [at];\n"
				"	add.u64 at, from1, offset;\n"
				"	ld.global.u32 more, [at];\n"
				"	add.u32 value, value, more;\n"
				"	add.u64 at, from2, offset;\n"
				"	ld.global.u32 more, [at];\n"
				"	add.u32 value, value, more;\n"
				"	add.u64 at, to, offset;\n"
				"	st.global.u32 [at], value;\n"
				"	add.u64 i, i, stride;\n"
				"	bra loop;\n"
				"end:\n"
				"	ret;\n"
				"}\n";

static const char clusters_ptx[] =
	".version 7.8\n"
	".target sm_90\n"
	".address_size 64\n"

	/* cluster_ranks(uint32_t *data, uint64_t n, uint32_t seed), of one block for each word:
	 * data[block] = seed + the block's rank in its cluster */
	".visible .entry cluster_ranks(.param .u64 data, .param .u64 n, .param .u32 seed)\n"
	"{\n"
	"	.reg .pred done;\n"
	"	.reg .b32 block, thread, rank, value;\n"
	"	.reg .b64 at, count, i;\n"
	"	ld.param.u64 at, [data];\n"
	"	ld.param.u64 count, [n];\n"
	"	ld.param.u32 value, [seed];\n"
	"	cvta.to.global.u64 at, at;\n"
	"	mov.u32 thread, %tid.x;\n"
	"	setp.ne.u32 done, thread, 0;\n"
	"	@done bra end;\n"
	"	mov.u32 block, %ctaid.x;\n"
	"	cvt.u64.u32 i, block;\n"
	"	setp.ge.u64 done, i, count;\n"
	"	@done bra end;\n"
	"	mov.u32 rank, %cluster_ctarank;\n"
	"	add.u32 value, value, rank;\n"
	"	shl.b64 i, i, 2;\n"
	"	add.u64 at, at, i;\n"
	"	st.global.u32 [at], value;\n"
	"end:\n"
	"	ret;\n"
	"}\n";

static CUfunction add_three, linked, cluster_ranks;
static CUdeviceptr counted; /* its words are the number of steps */
static CUgraphExec nodes;   /* instantiated before the first step, and sometimes anew */

static void load_lists(void)
{
	CUmodule module;

	CALL(cuModuleLoadData(&module, lists_ptx));
	CALL(cuModuleGetFunction(&add_three, module, "add_three"));
}

static void launch_struct(uint32_t step)
{
	struct {
		CUdeviceptr p[4];
		uint64_t n;
	} lists = {{a, b, a, b}, WORDS};
	void *args[] = {&lists};

	CALL(cuMemsetD32(b, step, WORDS));
	CALL(cuCtxSynchronize());
	CALL(cuLaunchKernel(add_three, 1, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	expect("a struct with pointers", b, WORDS, 2 * first + step, 2);
}

static void launch_packed(uint32_t step)
{
	struct {
		CUdeviceptr data;
		uint64_t n;
		uint32_t seed;
	} packed = {b, WORDS, step};
	size_t size = offsetof(__typeof__(packed), seed) + sizeof(packed.seed);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &size, CU_LAUNCH_PARAM_END};

	CALL(cuLaunchKernel(gpu.iota, 4, 1, 1, 256, 1, 1, 0, stream, NULL, extra));
	expect("a packed launch", b, WORDS, first, 1);
}

static void launch_cooperative(uint32_t step)
{
	void *args[] = {&b, &word_count, &step};

	CALL(cuLaunchCooperativeKernel(gpu.iota, 4, 1, 1, 256, 1, 1, 0, stream, args));
	expect("cuLaunchCooperativeKernel", b, WORDS, first, 1);
}

static void load_clusters(void)
{
	CUmodule module;

	CALL(cuModuleLoadData(&module, clusters_ptx));
	CALL(cuModuleGetFunction(&cluster_ranks, module, "cluster_ranks"));
}

static void launch_clusters(uint32_t step)
{
	CUlaunchAttribute size = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
				  .value.clusterDim = {2, 1, 1}};
	const CUlaunchConfig config = {.gridDimX = 8,
				       .gridDimY = 1,
				       .gridDimZ = 1,
				       .blockDimX = 32,
				       .blockDimY = 1,
				       .blockDimZ = 1,
				       .hStream = stream,
				       .attrs = &size,
				       .numAttrs = 1};
	uint64_t blocks = 8;
	void *args[] = {&b, &blocks, &step};

	CALL(cuLaunchKernelEx(&config, cluster_ranks, args, NULL));
	for (unsigned int i = 0; i < blocks; i += 2)
		expect("clusters", b + i * sizeof(step), 2, step, 1);
}

static void link_kernel(void)
{
	CUmodule module;
	CUlinkState state;
	size_t size;
	void *image;

	CALL(cuLinkCreate(0, NULL, NULL, &state));
	CALL(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)kernels_ptx, sizeof(kernels_ptx),
			   "kernels.ptx", 0, NULL, NULL));
	CALL(cuLinkComplete(state, &image, &size));
	CALL(cuModuleLoadData(&module, image));
	CALL(cuLinkDestroy(state));
	CALL(cuModuleGetFunction(&linked, module, "increment"));
}

static void launch_linked(uint32_t step)
{
	void *args[] = {&b, &word_count};

	CALL(cuMemsetD32(b, step, WORDS));
	CALL(cuCtxSynchronize());
	CALL(cuLaunchKernel(linked, 4, 1, 1, 256, 1, 1, 0, stream, args, NULL));
	expect("a kernel that was linked", b, WORDS, step + 1, 0);
}

/* A kernel counts, what it counted is copied to b, and the first words there are set. */
static void build_nodes(void)
{
	void *args[] = {&counted, &word_count};
	CUgraphNodeParams kernel = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
				    .kernel = {.func = gpu.increment,
					       .gridDimX = 4,
					       .gridDimY = 1,
					       .gridDimZ = 1,
					       .blockDimX = 256,
					       .blockDimY = 1,
					       .blockDimZ = 1,
					       .kernelParams = args}};
	CUgraphNodeParams copy = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.memcpy = {.copyCtx = gpu.ctx,
			   .copyParams = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
					  .srcDevice = counted,
					  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					  .dstDevice = b,
					  .WidthInBytes = SIZE,
					  .Height = 1,
					  .Depth = 1}},
	};
	CUgraphNodeParams set = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
				 .memset = {.dst = b,
					    .value = 7,
					    .elementSize = 4,
					    .width = 16,
					    .height = 1,
					    .ctx = gpu.ctx}};
	CUgraphNode node[3];
	CUgraph graph;

	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphAddNode(&node[0], graph, NULL, NULL, 0, &kernel));
	CALL(cuGraphAddNode(&node[1], graph, &node[0], NULL, 1, &copy));
	CALL(cuGraphAddNode(&node[2], graph, &node[1], NULL, 1, &set));
	CALL(cuGraphInstantiate(&nodes, graph, 0));
	CALL(cuGraphDestroy(graph));
}

static void make_nodes(void)
{
	CALL(cuMemAlloc(&counted, SIZE));
	CALL(cuMemsetD8(counted, 0, SIZE));
	CALL(cuCtxSynchronize());
	build_nodes();
}

static void launch_nodes(uint32_t step)
{
	CALL(cuGraphLaunch(nodes, stream));
	expect("a node that sets", b, 16, 7, 0);
	expect("a node that copies", b + 64, WORDS - 16, step + 1, 0);
	expect("a node with a kernel", counted, WORDS, step + 1, 0);
	if (step % 16 == 15) {
		CALL(cuGraphExecDestroy(nodes));
		build_nodes();
	}
}

#endif
