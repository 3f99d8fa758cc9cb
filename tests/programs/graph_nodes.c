/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs in all the ways in which addresses get into them: captured, and instantiated once; built
 * of nodes, with a child graph; cloned; changed by node and as a whole, before and after they were
 * instantiated. What is read back from a node must be what was put there.
 *
 *	--mem-ops 1	adds a node with operations on memory
 *	--outside 1	captures kernels that are given the ends of allocations, and do nothing there
 *	--outside 2	the same of what lies before allocations
 *	--outside 3	the same of the end of the first one, where memory of a pool begins
 *	--windows 1	gives the stream an access policy window, and another one a copy of it
 *	--windows 2	the last kernel of the graph as well
 *	--only N	makes the change of step N (0 to 7) in every step, and no other
 *	--stray 1	changes a node of a graph that the instantiated one was not last updated with
 *	--stray 2	and updates that with the graph
 *	--unload 1	has graphs with a kernel whose module is unloaded
 *	--mend 1	updates the graph whose launch is refused, and says so
 */
#include "tests/programs/kernels.h"

#define WORDS (1UL << 20) /* 4 MiB: a region of its own */
#define SIZE  (WORDS * sizeof(uint32_t))
/* Steps after which the changes begin anew. */
#define CHANGES 8

static struct kernels gpu;
static CUstream stream, copied;
static CUdeviceptr a, b, c, pool;
static unsigned long mem_ops, outside, windows, stray, unload, mend, only = CHANGES;

static CUgraphExec captured, built;
static CUgraph graph;
static CUgraphNode last, child; /* of graph */

static CUDA_KERNEL_NODE_PARAMS increment(CUdeviceptr *ptr, uint64_t *n, void **params)
{
	params[0] = ptr;
	params[1] = n;
	return (CUDA_KERNEL_NODE_PARAMS){.func = gpu.increment,
					 .gridDimX = 64,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = 256,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .kernelParams = params};
}

static void add_increment(CUgraphNode *node, CUgraph to, const CUgraphNode *after, CUdeviceptr ptr)
{
	uint64_t n = WORDS;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS p = increment(&ptr, &n, params);

	CALL(cuGraphAddKernelNode(node, to, after, after != NULL, &p));
}

static void capture(void)
{
	CUdeviceptr outside_a = outside == 2 ? a - sizeof(uint32_t) : a + SIZE;
	CUdeviceptr outside_b = outside == 1 ? b + SIZE : b - sizeof(uint32_t);
	uint64_t n = WORDS, none = 0;
	void *on_a[] = {&a, &n}, *on_b[] = {&b, &n};
	void *near_a[] = {&outside_a, &none}, *near_b[] = {&outside_b, &none};
	CUgraph found;

	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	kernels_launch(gpu.increment, stream, on_a);
	CALL(cuMemcpyDtoDAsync(b, a, SIZE / 2, stream));
	CALL(cuMemsetD8Async(a, 7, 4096, stream));
	kernels_launch(gpu.increment, stream, on_b);
	if (outside)
		kernels_launch(gpu.increment, stream, near_a);
	if (outside == 1 || outside == 2)
		kernels_launch(gpu.increment, stream, near_b);
	CALL(cuStreamEndCapture(stream, &found));
	CALL(cuGraphInstantiate(&captured, found, 0));
	CALL(cuGraphDestroy(found));
}

static void add_mem_ops(CUgraph to, const CUgraphNode *after)
{
	CUstreamBatchMemOpParams op = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
						      .address = a,
						      .value = 9}};
	CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {.ctx = gpu.ctx, .count = 1, .paramArray = &op};
	CUgraphNode node;

	CALL(cuGraphAddBatchMemOpNode(&node, to, after, 1, &ops));
	ops.paramArray = NULL;
	CALL(cuGraphBatchMemOpNodeGetParams(node, &ops));
	if (ops.paramArray[0].writeValue.address != a)
		step_die("an operation on memory has another address");
}

/* A graph of a copy, a set and a kernel inside of one with a kernel. */
static void build(void)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = b,
			      .dstDevice = c,
			      .WidthInBytes = SIZE / 4,
			      .Height = 1,
			      .Depth = 1};
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = c + 64, .value = 3, .elementSize = 4, .width = 16, .height = 1};
	CUgraphNode nodes[3];
	CUgraph inner;

	CALL(cuGraphCreate(&inner, 0));
	CALL(cuGraphAddMemcpyNode(&nodes[0], inner, NULL, 0, &copy, gpu.ctx));
	CALL(cuGraphAddMemsetNode(&nodes[1], inner, &nodes[0], 1, &set, gpu.ctx));
	add_increment(&nodes[2], inner, &nodes[1], c);
	if (mem_ops)
		add_mem_ops(inner, &nodes[2]);
	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphAddChildGraphNode(&child, graph, NULL, 0, inner));
	CALL(cuGraphDestroy(inner));
	add_increment(&last, graph, &child, b);
	CALL(cuGraphInstantiate(&built, graph, 0));
}

static void set_windows(void)
{
	CUlaunchAttributeValue value = {
		.accessPolicyWindow = {.base_ptr = (void *)a,
				       .num_bytes = 1 << 20,
				       .hitRatio = 1,
				       .hitProp = CU_ACCESS_PROPERTY_NORMAL,
				       .missProp = CU_ACCESS_PROPERTY_NORMAL}};

	CALL(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	CALL(cuStreamCreate(&copied, CU_STREAM_NON_BLOCKING));
	CALL(cuStreamCopyAttributes(copied, stream));
	if (windows > 1)
		CALL(cuGraphKernelNodeSetAttribute(
			last, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
}

static void change_stray_node(void)
{
	CUgraphExecUpdateResultInfo info;
	uint64_t n = WORDS;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS p = increment(&c, &n, params);
	CUgraph clone;

	CALL(cuGraphClone(&clone, graph));
	CALL(cuGraphExecUpdate(built, clone, &info));
	CALL(cuGraphDestroy(clone));
	CALL(cuGraphExecKernelNodeSetParams(built, last, &p));
	if (stray > 1)
		CALL(cuGraphExecUpdate(built, graph, &info));
}

static void lose_kernel(void)
{
	uint64_t n = WORDS;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS p = increment(&a, &n, params);
	CUgraph lost, outer;
	CUgraphNode node;
	CUgraphExec exec;
	CUmodule module;

	CALL(cuModuleLoadData(&module, kernels_ptx));
	CALL(cuModuleGetFunction(&p.func, module, "increment"));
	CALL(cuGraphCreate(&lost, 0));
	CALL(cuGraphAddKernelNode(&node, lost, NULL, 0, &p));
	CALL(cuGraphCreate(&outer, 0));
	CALL(cuGraphAddChildGraphNode(&node, outer, NULL, 0, lost));
	CALL(cuGraphInstantiate(&exec, outer, 0));
	CALL(cuModuleUnload(module));
}

static void setup(void)
{
	kernels_init(&gpu);
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (outside == 3)
		CALL(cuMemAllocAsync(&pool, SIZE, stream));
	CALL(cuMemAlloc(&a, SIZE));
	CALL(cuMemAlloc(&b, SIZE));
	CALL(cuMemAlloc(&c, SIZE));
	CALL(cuMemsetD8(a, 1, SIZE));
	CALL(cuMemsetD8(b, 2, SIZE));
	CALL(cuMemsetD8(c, 3, SIZE));
	CALL(cuCtxSynchronize());
	capture();
	build();
	if (windows)
		set_windows();
	if (stray)
		change_stray_node();
	if (unload)
		lose_kernel();
}

static void expect(CUdeviceptr found, CUdeviceptr put, const char *where)
{
	if (found != put)
		step_wrong("%s has %#llx where %#llx was put", where, found, put);
}

static void read_kernel(CUgraphNode node, CUdeviceptr put, const char *where)
{
	CUDA_KERNEL_NODE_PARAMS p;

	CALL(cuGraphKernelNodeGetParams(node, &p));
	expect(*(CUdeviceptr *)p.kernelParams[0], put, where);
	expect(*(uint64_t *)p.kernelParams[1], WORDS, "the kernel's second parameter");
}

/* @to is where the last kernel works. */
static void read_back(CUdeviceptr to)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_MEMCPY3D copy;
	CUgraphNode nodes[4];
	size_t count = 4;
	CUgraph inner;

	read_kernel(last, to, "the kernel");
	CALL(cuGraphChildGraphNodeGetGraph(child, &inner));
	CALL(cuGraphGetNodes(inner, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		CUgraphNodeType type;

		CALL(cuGraphNodeGetType(nodes[i], &type));
		if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
			read_kernel(nodes[i], c, "the child's kernel");
		} else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
			CALL(cuGraphMemcpyNodeGetParams(nodes[i], &copy));
			expect(copy.srcDevice, b, "the copy's source");
			expect(copy.dstDevice, c, "the copy's target");
		} else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
			CALL(cuGraphMemsetNodeGetParams(nodes[i], &set));
			expect(set.dst, c + 64, "the set");
		}
	}
}

static void read_windows(void)
{
	CUlaunchAttributeValue value;

	CALL(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	expect((CUdeviceptr)value.accessPolicyWindow.base_ptr, a, "the stream's window");
	CALL(cuStreamGetAttribute(copied, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	expect((CUdeviceptr)value.accessPolicyWindow.base_ptr, a, "its copy");
	if (windows < 2)
		return;
	CALL(cuGraphKernelNodeGetAttribute(last, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW,
					   &value));
	expect((CUdeviceptr)value.accessPolicyWindow.base_ptr, a, "the kernel's window");
}

static void launch_clone(void)
{
	CUgraphNode found;
	CUgraphExec exec;
	CUgraph clone;

	CALL(cuGraphClone(&clone, graph));
	CALL(cuGraphNodeFindInClone(&found, last, clone));
	CALL(cuGraphInstantiate(&exec, clone, 0));
	CALL(cuGraphNodeFindInClone(&found, child, clone));
	CALL(cuGraphDestroyNode(found));
	CALL(cuGraphDestroy(clone));
	CALL(cuGraphLaunch(exec, stream));
	CALL(cuStreamSynchronize(stream));
	CALL(cuGraphExecDestroy(exec));
}

static CUresult launch_built(void)
{
	CUgraphExecUpdateResultInfo info;
	CUresult result = cuGraphLaunch(built, stream);

	if (!mend || result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
		return result;
	printf("mended\n");
	CALL(cuGraphExecUpdate(built, graph, &info));
	return cuGraphLaunch(built, stream);
}

static void step(unsigned long k)
{
	static CUdeviceptr last_works_on;
	CUdeviceptr to[] = {a, b, c}, ptr = to[k % 3];
	CUgraphExecUpdateResultInfo info;
	uint64_t n = WORDS;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS p = increment(&ptr, &n, params);

	CALL(cuGraphLaunch(captured, stream));
	CALL(launch_built());
	read_back(last_works_on ? last_works_on : b);
	if (windows)
		read_windows();
	switch (only < CHANGES ? only : k % CHANGES) {
	case 0:
		CALL(cuGraphExecKernelNodeSetParams(built, last, &p));
		break;
	case 1:
		CALL(cuGraphKernelNodeSetParams(last, &p));
		last_works_on = ptr;
		break;
	case 2:
		CALL(cuGraphExecUpdate(built, graph, &info));
		break;
	case 6:
		CALL(cuStreamSynchronize(stream));
		CALL(cuGraphExecDestroy(built));
		CALL(cuGraphInstantiate(&built, graph, 0));
		break;
	case 4:
		launch_clone();
		break;
	default:
		break;
	}
	CALL(cuStreamSynchronize(stream));
}

static void report(const char *what, CUdeviceptr ptr)
{
	uint32_t *host = malloc(SIZE);

	if (!host)
		step_die("out of memory");
	CALL(cuMemcpyDtoH(host, ptr, SIZE));
	step_print_digest(what, step_digest(STEP_DIGEST_INIT, host, SIZE));
	free(host);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mem-ops", &mem_ops}, {"outside", &outside},
					      {"windows", &windows}, {"stray", &stray},
					      {"unload", &unload},   {"mend", &mend},
					      {"only", &only}};

	step_parse(argc, argv, options, 7);
	setup();
	for (unsigned long k = 0; step_more(k); k++) {
		step(k);
		step_done(k);
	}
	report("a", a);
	report("b", b);
	report("c", c);
	CALL(cuGraphExecDestroy(captured));
	CALL(cuGraphExecDestroy(built));
	CALL(cuGraphDestroy(graph));
	return 0;
}
