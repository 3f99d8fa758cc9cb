/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between two GPUs without peer access, by one of the calls that copy.
 *
 *	across [--call N] [--list 1] [--row 1] [--opened N [--kept 1]]
 *
 * Each step allocates on both GPUs, copies from the first to the second by call N (0: by all in
 * turn), with the one or the other GPU's context current, and checks every byte. The first copy of
 * a process is the first that needs the one GPU to reach the other's memory, so each call should
 * have a process of its own. --list 1 prints the calls' names. With --row 1 cuMemcpy2D() copies two
 * parts of one row, which need no pitch.
 *
 * With --opened N the first GPU's memory is that of another process, and each step opens it by its
 * legacy IPC handle with the first (1) or the second (2) GPU's context current, so that each copy is
 * the first of its memory. --kept 1: it stays open.
 */
#include "tests/programs/kernels.h"

#include <sys/socket.h>

#define ROW  4096U
#define ROWS 256U
#define SIZE (ROW * ROWS)

static struct kernels gpu;
static CUcontext contexts[2];
static CUstream streams[2];
static unsigned char *host; /* pinned */
static CUdeviceptr from, to;
static int current; /* index of the current context */
static unsigned long row, opened, kept;
static CUipcMemHandle handle;

static void by_memcpy(void)
{
	CALL(cuMemcpy(to, from, SIZE));
}

static void by_memcpy_async(void)
{
	CALL(cuMemcpyAsync(to, from, SIZE, streams[current]));
}

static void by_dtod(void)
{
	CALL(cuMemcpyDtoD(to, from, SIZE));
}

static void by_dtod_async(void)
{
	CALL(cuMemcpyDtoDAsync(to, from, SIZE, streams[current]));
}

/* By the other device's stream. */
static void by_other_stream(void)
{
	CALL(cuMemcpyDtoDAsync(to, from, SIZE, streams[!current]));
	CALL(cuStreamSynchronize(streams[!current]));
}

static void by_thread_stream(void)
{
	CUresult (*copy)(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream);

	CALL(cuGetProcAddress("cuMemcpyDtoDAsync", (void **)&copy, 13000,
			      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	CALL(copy(to, from, SIZE, NULL));
}

static void by_peer(void)
{
	CALL(cuMemcpyPeer(to, contexts[1], from, contexts[0], SIZE));
}

static void by_peer_async(void)
{
	CALL(cuMemcpyPeerAsync(to, contexts[1], from, contexts[0], SIZE, streams[current]));
}

static CUDA_MEMCPY2D rectangle(void)
{
	return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .srcPitch = ROW,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = to,
			       .dstPitch = ROW,
			       .WidthInBytes = ROW,
			       .Height = ROWS};
}

static void by_row(void)
{
	CUDA_MEMCPY2D copy = rectangle();

	copy.srcPitch = copy.dstPitch = 0;
	copy.WidthInBytes = SIZE / 2;
	copy.Height = 1;
	CALL(cuMemcpy2D(&copy));
	copy.srcXInBytes = copy.dstXInBytes = SIZE / 2;
	CALL(cuMemcpy2D(&copy));
}

static void by_2d(void)
{
	CUDA_MEMCPY2D copy = rectangle();

	if (row)
		by_row();
	else
		CALL(cuMemcpy2D(&copy));
}

static void by_2d_unaligned(void)
{
	CUDA_MEMCPY2D copy = rectangle();

	CALL(cuMemcpy2DUnaligned(&copy));
}

static void by_2d_async(void)
{
	CUDA_MEMCPY2D copy = rectangle();

	CALL(cuMemcpy2DAsync(&copy, streams[current]));
}

static CUDA_MEMCPY3D box(void)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .srcPitch = ROW,
			       .srcHeight = ROWS / 2,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = to,
			       .dstPitch = ROW,
			       .dstHeight = ROWS / 2,
			       .WidthInBytes = ROW,
			       .Height = ROWS / 2,
			       .Depth = 2};
}

static void by_3d(void)
{
	CUDA_MEMCPY3D copy = box();

	CALL(cuMemcpy3D(&copy));
}

static void by_3d_async(void)
{
	CUDA_MEMCPY3D copy = box();

	CALL(cuMemcpy3DAsync(&copy, streams[current]));
}

static CUDA_MEMCPY3D_PEER box_peer(void)
{
	return (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				    .srcDevice = from,
				    .srcContext = contexts[0],
				    .srcPitch = ROW,
				    .srcHeight = ROWS / 2,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = to,
				    .dstContext = contexts[1],
				    .dstPitch = ROW,
				    .dstHeight = ROWS / 2,
				    .WidthInBytes = ROW,
				    .Height = ROWS / 2,
				    .Depth = 2};
}

static void by_3d_peer(void)
{
	CUDA_MEMCPY3D_PEER copy = box_peer();

	CALL(cuMemcpy3DPeer(&copy));
}

static void by_3d_peer_async(void)
{
	CUDA_MEMCPY3D_PEER copy = box_peer();

	CALL(cuMemcpy3DPeerAsync(&copy, streams[current]));
}

static void by_batch(void)
{
	CUdeviceptr dsts[] = {to, to + SIZE / 2}, srcs[] = {from, from + SIZE / 2};
	size_t sizes[] = {SIZE / 2, SIZE / 2}, first = 0;
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

	CALL(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &first, 1, streams[current]));
}

static void by_3d_batch(void)
{
	CUDA_MEMCPY3D_BATCH_OP op = {
		.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from},
		.dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to},
		.extent = {ROW, ROWS, 1},
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};

	CALL(cuMemcpy3DBatchAsync(1, &op, 0, streams[current]));
}

/* The context of the other device is current. */
static void by_host(void)
{
	CALL(cuCtxSetCurrent(contexts[1]));
	CALL(cuMemcpyDtoH(host, from, SIZE));
	CALL(cuCtxSetCurrent(contexts[0]));
	CALL(cuMemcpyHtoD(to, host, SIZE));
}

static void by_host_async(void)
{
	CALL(cuMemcpyDtoHAsync(host, from, SIZE, streams[1]));
	CALL(cuStreamSynchronize(streams[1]));
	CALL(cuMemcpyHtoDAsync(to, host, SIZE, streams[0]));
	CALL(cuStreamSynchronize(streams[0]));
}

static void launch(CUgraph graph)
{
	CUgraphExec exec;

	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuGraphLaunch(exec, streams[current]));
	CALL(cuStreamSynchronize(streams[current]));
	CALL(cuGraphExecDestroy(exec));
	CALL(cuGraphDestroy(graph));
}

static void by_capture(void)
{
	CUgraph graph;

	CALL(cuStreamBeginCapture(streams[current], CU_STREAM_CAPTURE_MODE_GLOBAL));
	CALL(cuMemcpyDtoDAsync(to, from, SIZE, streams[current]));
	CALL(cuStreamEndCapture(streams[current], &graph));
	launch(graph);
}

/* Of one run of bytes. */
static CUDA_MEMCPY3D run(CUdeviceptr dst)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = from,
			       .srcPitch = SIZE,
			       .srcHeight = 1,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = dst,
			       .dstPitch = SIZE,
			       .dstHeight = 1,
			       .WidthInBytes = SIZE,
			       .Height = 1,
			       .Depth = 1};
}

static void by_node(void)
{
	CUDA_MEMCPY3D copy = run(to);
	CUgraphNode node;
	CUgraph graph;

	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, contexts[current]));
	launch(graph);
}

/* The node copies within the first device before. */
static void by_node_set(void)
{
	CUDA_MEMCPY3D copy = run(to), before = run(from);
	CUgraphNode node;
	CUgraph graph;

	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &before, contexts[0]));
	CALL(cuGraphMemcpyNodeSetParams(node, &copy));
	launch(graph);
}

static void by_node_of_any_type(void)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	CUgraphNode node;
	CUgraph graph;

	params.memcpy.copyCtx = contexts[current];
	params.memcpy.copyParams = run(to);
	CALL(cuGraphCreate(&graph, 0));
	CALL(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
	launch(graph);
}

static const struct {
	const char *name;
	void (*copy)(void);
} calls[] = {
	{"cuMemcpy", by_memcpy},
	{"cuMemcpyAsync", by_memcpy_async},
	{"cuMemcpyDtoD", by_dtod},
	{"cuMemcpyDtoDAsync", by_dtod_async},
	{"cuMemcpyDtoDAsync in the other stream", by_other_stream},
	{"cuMemcpyDtoDAsync in the thread's stream", by_thread_stream},
	{"cuMemcpyPeer", by_peer},
	{"cuMemcpyPeerAsync", by_peer_async},
	{"cuMemcpy2D", by_2d},
	{"cuMemcpy2DUnaligned", by_2d_unaligned},
	{"cuMemcpy2DAsync", by_2d_async},
	{"cuMemcpy3D", by_3d},
	{"cuMemcpy3DAsync", by_3d_async},
	{"cuMemcpy3DPeer", by_3d_peer},
	{"cuMemcpy3DPeerAsync", by_3d_peer_async},
	{"cuMemcpyBatchAsync", by_batch},
	{"cuMemcpy3DBatchAsync", by_3d_batch},
	{"cuMemcpyDtoH and HtoD", by_host},
	{"cuMemcpyDtoHAsync and HtoDAsync", by_host_async},
	{"cuMemcpyDtoDAsync captured", by_capture},
	{"cuGraphAddMemcpyNode", by_node},
	{"cuGraphMemcpyNodeSetParams", by_node_set},
	{"cuGraphAddNode", by_node_of_any_type},
};

#define NCALLS (sizeof(calls) / sizeof(calls[0]))

/* With the context of the memory as current, or of the other device. */
static void in_context(int index)
{
	current = index;
	CALL(cuCtxSetCurrent(contexts[index]));
}

static void check(const char *name, unsigned char value)
{
	in_context(1);
	CALL(cuCtxSynchronize());
	memset(host, 0, SIZE);
	CALL(cuMemcpyDtoH(host, to, SIZE));
	for (size_t i = 0; i < SIZE; i++)
		if (host[i] != value)
			step_wrong("%s: byte %zu is %u, should be %u", name, i, host[i], value);
}

/* In the other process, until this one ends. */
static void export(int to_parent)
{
	char end;

	kernels_init(&gpu);
	CALL(cuMemAlloc(&from, SIZE));
	CALL(cuIpcGetMemHandle(&handle, from));
	if (write(to_parent, &handle, sizeof(handle)) == sizeof(handle))
		(void)!read(to_parent, &end, 1);
	exit(0);
}

/* Before the first CUDA call. */
static void start_exporter(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		step_die("socketpair: %s", strerror(errno));
	if (!fork()) {
		close(ends[0]);
		export(ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], &handle, sizeof(handle)) != sizeof(handle))
		step_die("the other process has ended");
}

static void make_from(unsigned char value)
{
	in_context(opened == 2);
	if (!opened)
		CALL(cuMemAlloc(&from, SIZE));
	else if (!from)
		CALL(cuIpcOpenMemHandle(&from, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CALL(cuMemsetD8(from, value, SIZE));
	CALL(cuCtxSynchronize());
}

static void end_from(void)
{
	if (kept)
		return;
	in_context(opened == 2);
	CALL(opened ? cuIpcCloseMemHandle(from) : cuMemFree(from));
	from = 0;
}

static void step(unsigned long k, unsigned long call)
{
	unsigned char value = (unsigned char)(k + 1);

	make_from(value);
	in_context(1);
	CALL(cuMemAlloc(&to, SIZE));
	CALL(cuMemsetD8(to, 0, SIZE));
	CALL(cuCtxSynchronize());
	in_context(k & 1);
	calls[call].copy();
	CALL(cuCtxSynchronize());
	check(calls[call].name, value);
	CALL(cuMemFree(to));
	end_from();
}

static void setup(void)
{
	int count;

	kernels_init(&gpu);
	CALL(cuDeviceGetCount(&count));
	if (count < 2)
		step_die("two GPUs needed, %d here", count);
	contexts[0] = gpu.ctx;
	CALL(cuDevicePrimaryCtxRetain(&contexts[1], 1));
	for (int i = 0; i < 2; i++) {
		in_context(i);
		CALL(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	}
	CALL(cuMemHostAlloc((void **)&host, SIZE, CU_MEMHOSTALLOC_PORTABLE));
}

int main(int argc, char **argv)
{
	unsigned long call = 0, list = 0, k;
	const struct step_option options[] = {{"call", &call},
					      {"list", &list},
					      {"row", &row},
					      {"opened", &opened},
					      {"kept", &kept}};

	step_parse(argc, argv, options, 5);
	for (size_t i = 0; list && i < NCALLS; i++)
		puts(calls[i].name);
	if (list)
		return 0;
	if (call > NCALLS)
		step_die("--call: at most %zu", NCALLS);
	if (opened)
		start_exporter();
	setup();
	for (k = 0; step_more(k); k++) {
		step(k, call ? call - 1 : k % NCALLS);
		step_done(k);
	}
	printf("across: every byte right\n");
	return 0;
}
