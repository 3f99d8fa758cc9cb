/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of graphs: a launch takes it from the device, and it stays reserved for later launches
 * until it is trimmed. Only the driver knows its size, so it is asked: only if a graph has
 * allocation nodes, only once in ASK_MS, and never while a capture is open, which a call that the
 * driver considers unsafe would break.
 */
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/green.h"
#include "common/clock.h"
#include "common/gpu/gpu.h"
#include "common/protocol/quota.h"
#include "common/size.h"
#include "common/system/forks.h"
#include "vmem/addresses/translate.h"
#include "vmem/context_gone.h"
#include "wrapper/current.h"
#include "wrapper/hooks/driver_allocs.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/real.h"
#include "wrapper/translated/before.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/translated/node_readback.h"

#include <stdbool.h>
#include <stdint.h>

#define ASK_MS 100

static bool any; /* a graph with allocation nodes was made */
static uint64_t next_ask_us;

FORKS_LOCK(lock);
/* Of the quotas, and in which context that was seen; under lock. */
static size_t taken[GPU_MAX];
static CUcontext taken_in[GPU_MAX];

void driver_allocs_in_graphs(void)
{
	__atomic_store_n(&any, true, __ATOMIC_RELAXED);
}

/* Under lock. */
static void note(CUdevice dev, CUcontext ctx, size_t bytes)
{
	taken[dev] = bytes;
	taken_in[dev] = ctx ? ctx : taken_in[dev];
}

/* True if the graphs of @dev had @had; they have @bytes now. */
static bool has_noted(CUdevice dev, CUcontext ctx, size_t had, size_t bytes)
{
	bool same;

	pthread_mutex_lock(&lock);
	same = taken[dev] == had;
	if (same)
		note(dev, ctx, bytes);
	pthread_mutex_unlock(&lock);
	return same;
}

/*
 * The graphs of @dev hold @bytes, as seen in @ctx (NULL: in none of @dev's). False: that is more than they had, and
 * beyond the quota. It is taken without the lock, as it may wait.
 */
static bool fits(CUdevice dev, CUcontext ctx, size_t bytes)
{
	size_t had;

	for (;;) {
		had = __atomic_load_n(&taken[dev], __ATOMIC_RELAXED);
		if (bytes > had && !quota_take(dev, bytes - had))
			return false;
		if (has_noted(dev, ctx, had, bytes))
			break;
		quota_give(dev, size_less(bytes, had));
	}
	quota_give(dev, size_less(had, bytes));
	return true;
}

/* Its graphs are gone. If others have memory, the next launch of one sees it. */
static void forget_context(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (CUdevice dev = 0; dev < GPU_MAX; dev++)
		if (taken[dev] && taken_in[dev] == ctx) {
			quota_give(dev, taken[dev]);
			taken[dev] = 0;
		}
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(forget_context);

/* The current context is one of @dev. */
static bool is_current(CUdevice dev)
{
	CUdevice current;

	return !real.cuCtxGetDevice(&current) && current == dev;
}

/* Note the memory that the graphs of @dev hold. False: it is beyond the quota. */
static bool ask_device(CUdevice dev)
{
	CUstreamCaptureMode mode;
	cuuint64_t bytes;
	CUresult result;
	CUcontext ctx = NULL;

	if (captures_open(driver_table()))
		return true;
	/* Another thread may begin one now. */
	mode = fence_relax();
	result = real.cuDeviceGetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
						   &bytes);
	fence_unrelax(mode);
	if (result)
		return true;
	driver_memory_add(DRIVER_MEMORY_GRAPH, (uint64_t)dev, bytes);
	if (is_current(dev))
		real.cuCtxGetCurrent(&ctx);
	return dev >= GPU_MAX || fits(dev, ctx ? green_owner(ctx) : NULL, bytes);
}

/* The same of the current device. */
static bool ask(void)
{
	CUdevice dev;

	return real.cuCtxGetDevice(&dev) || ask_device(dev);
}

/* Upload the graph, which takes its memory. False: it is beyond the quota. */
static bool upload_fits(CUgraphExec exec, CUstream stream, CUresult *result)
{
	if (real.cuGraphUpload)
		*result = real.cuGraphUpload(exec, stream);
	return *result || ask();
}

/* Give back what graphs of the current device keep for later launches. */
static bool trim(void)
{
	CUdevice dev;

	if (real.cuCtxGetDevice(&dev) || real.cuDeviceGraphMemTrim(dev))
		return false;
	ask_device(dev);
	return true;
}

/*
 * The memory of a graph comes with its first launch, or with cuGraphUpload(). So that a launch beyond the quota
 * fails, the graph is uploaded first, and its memory is given back if it is too much; if others gave theirs back, it may
 * fit then.
 */
static CUresult prepare(CUgraphExec exec, CUstream stream)
{
	CUresult result = graphs_usable(exec);

	if (result || !quota_is_on() || !__atomic_load_n(&any, __ATOMIC_RELAXED) ||
	    captures_open(driver_table()))
		return result;
	if (upload_fits(exec, stream, &result) || (trim() && upload_fits(exec, stream, &result)))
		return result;
	trim();
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult launched(CUresult result)
{
	uint64_t now;

	if (result || !__atomic_load_n(&any, __ATOMIC_RELAXED))
		return result;
	now = clock_us_of(clock_ms());
	if (now >= __atomic_load_n(&next_ask_us, __ATOMIC_RELAXED)) {
		__atomic_store_n(&next_ask_us, now + clock_us_of(ASK_MS), __ATOMIC_RELAXED);
		ask();
	}
	return result;
}

CUresult hook_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	CUresult result = prepare(hGraphExec, hStream);

	return result ? result : launched(real.cuGraphLaunch(hGraphExec, hStream));
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	CUresult result = prepare(hGraphExec, per_thread(hStream));

	return result ? result : launched(real.cuGraphLaunch_ptsz(hGraphExec, hStream));
}

CUresult hook_cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult result = real.cuDeviceGraphMemTrim(device);

	if (!result && __atomic_load_n(&any, __ATOMIC_RELAXED))
		ask_device(device);
	return result;
}

CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				     const CUgraphNode *dependencies, size_t numDependencies,
				     CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	driver_allocs_in_graphs();
	return real.cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies,
					   nodeParams);
}

CUresult hook_cuGraphDestroyNode(CUgraphNode hNode)
{
	CUresult result;

	node_readback_leaving_node(hNode);
	result = graphs_destroy_node(hNode);
	if (!result)
		node_readback_forget_node(hNode);
	return result;
}

/* A node with @params was added. */
static CUresult added(CUresult result, const CUgraphNodeParams *params)
{
	if (result)
		return result;
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		driver_allocs_in_graphs();
#if CUDA_VERSION >= 12090
	if (params->type == CU_GRAPH_NODE_TYPE_GRAPH &&
	    params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
		graphs_remove(params->graph.graph);
#endif
	return CUDA_SUCCESS;
}

/* @v2: by cuGraphAddNode_v2(), which alone takes @data; else by cuGraphAddNode(). */
static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			 const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *params, bool v2)
{
	struct copies copies;
	CUresult result;

	copies_init(&copies);
	result = translate_is_on() ? before_node(&copies, &params) : CUDA_SUCCESS;
	if (!result && v2)
		result = real.cuGraphAddNode_v2(node, graph, dependencies, data, n, params);
	else if (!result)
		result = real.cuGraphAddNode(node, graph, dependencies, n, params);
	result = added(result, params);
	copies_free(&copies);
	return result;
}

CUresult hook_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies,
			     CUgraphNodeParams *nodeParams)
{
	return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams,
			false);
}

CUresult hook_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies,
				const CUgraphEdgeData *dependencyData, size_t numDependencies,
				CUgraphNodeParams *nodeParams)
{
	return add_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
			nodeParams, true);
}
