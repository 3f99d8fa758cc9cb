/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated driver's graphs: nodes that are added, read back, changed, cloned and updated. */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"

static CUgraph graph;
static CUstream stream;
static CUdeviceptr a, b;

static void begin(void)
{
	open_context();
	ok(cu.cuMemAlloc_v2(&a, 4096));
	ok(cu.cuMemAlloc_v2(&b, 4096));
	ok(cu.cuMemsetD32_v2(a, 0, 1024));
	ok(cu.cuMemsetD32_v2(b, 0, 1024));
	ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu.cuCtxSynchronize());
	ok(cu.cuGraphCreate(&graph, 0));
}

static CUDA_KERNEL_NODE_PARAMS increment(CUdeviceptr *ptr, uint64_t *n, void **params)
{
	CUDA_KERNEL_NODE_PARAMS p = {.gridDimX = 1,
				     .gridDimY = 1,
				     .gridDimZ = 1,
				     .blockDimX = 32,
				     .blockDimY = 1,
				     .blockDimZ = 1,
				     .kernelParams = params};

	params[0] = ptr;
	params[1] = n;
	ok(cu.cuModuleGetFunction(&p.func, module, "increment"));
	return p;
}

static CUgraphNode add_increment(CUgraph to, CUdeviceptr ptr)
{
	uint64_t n = 1;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS p = increment(&ptr, &n, params);
	CUgraphNode node;

	ok(cu.cuGraphAddKernelNode_v2(&node, to, NULL, 0, &p));
	return node;
}

static CUDA_MEMCPY3D copy_of(CUdeviceptr dst, CUdeviceptr src)
{
	return (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = dst,
			       .srcDevice = src,
			       .WidthInBytes = 4,
			       .Height = 1,
			       .Depth = 1};
}

static CUgraphExec instantiate(CUgraph from)
{
	CUgraphExec exec;

	ok(cu.cuGraphInstantiateWithFlags(&exec, from, 0));
	return exec;
}

/* Launch it @times, and return the first words of a and b as one number. */
static unsigned int run(CUgraphExec exec, int times)
{
	while (times--)
		ok(cu.cuGraphLaunch(exec, stream));
	ok(cu.cuStreamSynchronize(stream));
	return 100 * *(uint32_t *)a + *(uint32_t *)b;
}

START_TEST(test_nodes_run_in_order)
{
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = a, .value = 5, .elementSize = 4, .width = 1, .height = 1};
	CUDA_MEMCPY3D copy;
	CUgraphNode node;

	begin();
	set.dst = a;
	copy = copy_of(b, a);
	ok(cu.cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, primary));
	ok(cu.cuGraphAddEmptyNode(&node, graph, NULL, 0));
	add_increment(graph, a);
	ok(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, primary));
	add_increment(graph, a);
	ck_assert_uint_eq(run(instantiate(graph), 2), 706);
}
END_TEST

START_TEST(test_nodes_are_read_back)
{
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_MEMCPY3D copy;
	CUgraphNodeType type;
	CUgraphNode nodes[4];
	size_t count = 4;

	begin();
	ok(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu.cuMemsetD32Async(a, 9, 16, stream));
	ok(launch("increment", stream, a, 16, 0));
	ok(cu.cuMemcpyHtoDAsync_v2(b, &count, 8, stream));
	ok(cu.cuStreamEndCapture(stream, &graph));
	ok(cu.cuGraphGetNodes(graph, nodes, &count));
	ck_assert_uint_eq(count, 3);
	ck_assert_ptr_eq(nodes[3], NULL);

	ok(cu.cuGraphMemsetNodeGetParams(nodes[0], &set));
	ck_assert_uint_eq(set.dst, a);
	ck_assert_uint_eq(set.width, 16);
	ok(cu.cuGraphNodeGetType(nodes[1], &type));
	ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_KERNEL);
	ok(cu.cuGraphKernelNodeGetParams_v2(nodes[1], &kernel));
	ck_assert_uint_eq(*(CUdeviceptr *)kernel.kernelParams[0], a);
	ck_assert_uint_eq(*(uint64_t *)kernel.kernelParams[1], 16);
	ok(cu.cuGraphMemcpyNodeGetParams(nodes[2], &copy));
	ck_assert_int_eq(copy.srcMemoryType, CU_MEMORYTYPE_HOST);
	ck_assert_ptr_eq(copy.srcHost, &count);
	ck_assert_uint_eq(copy.dstDevice, b);
	fails(cu.cuGraphMemcpyNodeGetParams(nodes[1], &copy), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuGraphDestroy(graph));
	fails(cu.cuGraphNodeGetType(nodes[1], &type), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* A change of the graph is not one of what was instantiated before; an update makes it so. */
START_TEST(test_instantiated_graphs_have_their_own)
{
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS p;
	uint64_t n = 1;
	void *params[2];
	CUgraphNode node;
	CUgraphExec exec;

	begin();
	node = add_increment(graph, a);
	exec = instantiate(graph);
	p = increment(&b, &n, params);
	ok(cu.cuGraphKernelNodeSetParams_v2(node, &p));
	ck_assert_uint_eq(run(exec, 1), 100);
	ok(cu.cuGraphExecUpdate_v2(exec, graph, &info));
	ck_assert_uint_eq(run(exec, 1), 101);
	p = increment(&a, &n, params);
	ok(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
	ck_assert_uint_eq(run(exec, 1), 201);
	ok(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
	add_increment(graph, a);
	fails(cu.cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	ok(cu.cuGraphDestroy(graph));
	ck_assert_uint_eq(run(exec, 1), 301);
}
END_TEST

START_TEST(test_clones_and_children)
{
	CUgraph parent, inside, clone;
	CUgraphNode child, node, found;

	begin();
	node = add_increment(graph, a);
	ok(cu.cuGraphCreate(&parent, 0));
	ok(cu.cuGraphAddChildGraphNode(&child, parent, NULL, 0, graph));
	add_increment(parent, b);
	ok(cu.cuGraphChildGraphNodeGetGraph(child, &inside));
	fails(cu.cuGraphDestroy(inside), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuGraphNodeFindInClone(&found, node, inside));
	ok(cu.cuGraphClone(&clone, parent));
	fails(cu.cuGraphNodeFindInClone(&found, node, clone), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuGraphNodeFindInClone(&found, child, clone));
	ok(cu.cuGraphDestroyNode(child));
	ck_assert_uint_eq(run(instantiate(parent), 1), 1);
	ck_assert_uint_eq(run(instantiate(clone), 1), 102);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("graphs of the simulated driver");
	TCase *tcase = tcase_create("graphs");

	tcase_add_test(tcase, test_nodes_run_in_order);
	tcase_add_test(tcase, test_nodes_are_read_back);
	tcase_add_test(tcase, test_instantiated_graphs_have_their_own);
	tcase_add_test(tcase, test_clones_and_children);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
