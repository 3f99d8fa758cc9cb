/* SPDX-License-Identifier: Apache-2.0 */
/* With translated addressing: which graphs there are, and their nodes as the program reads them. */
#include "calls.h"
#include "wrapper/graph_node.h"
#include "wrapper/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/*
 * What was read back from nodes and is the node's: it stays valid until the node goes or is
 * changed. Where it was not changed what is there stays, as the program may still look at it.
 */
struct shown {
	CUgraphNode node;
	struct graph_node *read;
	UT_hash_handle hh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shown *table; /* under lock */

static void forget_node(CUgraphNode node)
{
	struct shown *s;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, s);
	if (s)
		HASH_DEL(table, s);
	pthread_mutex_unlock(&lock);
	if (s)
		graph_node_free(s->read);
	free(s);
}

/* The same of all nodes of @graph, which is about to go. */
static void forget_nodes(CUgraph graph)
{
	CUgraphNode *nodes = NULL;
	CUgraphNodeType type;
	size_t count = 0;
	CUgraph child;

	if (!__atomic_load_n(&table, __ATOMIC_RELAXED) || real.cuGraphGetNodes(graph, NULL, &count))
		return;
	nodes = calloc(count + 1, sizeof(*nodes));
	if (nodes && real.cuGraphGetNodes(graph, nodes, &count))
		count = 0;
	for (size_t i = 0; nodes && i < count; i++) {
		forget_node(nodes[i]);
		if (!real.cuGraphNodeGetType(nodes[i], &type) && type == CU_GRAPH_NODE_TYPE_GRAPH &&
		    !real.cuGraphChildGraphNodeGetGraph(nodes[i], &child))
			forget_nodes(child);
	}
	free(nodes);
}

/* What the program is to be shown in place of @node's parameters; NULL where they are right. */
static const struct graph_node *show(CUgraphNode node, CUgraphNodeType type)
{
	struct graph_node *read, *unused;
	struct shown *s, *fresh;

	graph_node_read(node, type, &read);
	if (!read)
		return NULL;
	fresh = calloc(1, sizeof(*fresh));
	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, s);
	if (!s && fresh) {
		fresh->node = node;
		HASH_ADD_PTR(table, node, fresh);
		s = fresh->hh.tbl ? fresh : NULL;
		fresh = s ? NULL : fresh;
	}
	unused = read;
	if (s && (!s->read || !graph_node_same(s->read, read))) {
		unused = s->read;
		s->read = read;
	}
	read = s ? s->read : NULL;
	pthread_mutex_unlock(&lock);
	graph_node_free(unused);
	free(fresh);
	return read;
}

/* @params are of either version. */
#define SHOWN_KERNEL(result, node, params)                                \
	({                                                                \
		CUresult r_ = result;                                     \
		const struct graph_node *s_ = NULL;                       \
		if (!r_)                                                  \
			s_ = show(node, CU_GRAPH_NODE_TYPE_KERNEL);       \
		if (s_) {                                                 \
			(params)->kernelParams = s_->kernel.kernelParams; \
			(params)->extra = s_->kernel.extra;               \
		}                                                         \
		r_;                                                       \
	})

CUresult hook_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return SHOWN_KERNEL(real.cuGraphKernelNodeGetParams_v2(hNode, nodeParams), hNode,
			    nodeParams);
}

CUresult hook_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	return SHOWN_KERNEL(real.cuGraphKernelNodeGetParams(hNode, nodeParams), hNode, nodeParams);
}

CUresult hook_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
					     CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
	CUresult result = real.cuGraphBatchMemOpNodeGetParams(hNode, nodeParams_out);
	const struct graph_node *shown;

	shown = result ? NULL : show(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	if (shown)
		nodeParams_out->paramArray = shown->ops.paramArray;
	return result;
}

CUresult hook_cuGraphDestroyNode(CUgraphNode hNode)
{
	CUresult result = real.cuGraphDestroyNode(hNode);

	if (!result)
		forget_node(hNode);
	return result;
}

CUresult hook_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	CUresult result = real.cuGraphCreate(phGraph, flags);

	if (!result)
		graphs_add(*phGraph);
	return result;
}

CUresult hook_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	CUresult result = graphs_usable(originalGraph);

	if (!result)
		result = real.cuGraphClone(phGraphClone, originalGraph);
	if (!result)
		graphs_add(*phGraphClone);
	return result;
}

CUresult hook_cuGraphDestroy(CUgraph hGraph)
{
	forget_nodes(hGraph);
	graphs_remove(hGraph);
	return real.cuGraphDestroy(hGraph);
}

/* @flags are those of the instantiation. */
static CUresult instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph,
			     unsigned long long flags)
{
	if (result)
		return result;
	graphs_instantiated(*exec, graph);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		graphs_fix(*exec, "launches by the GPU");
	return CUDA_SUCCESS;
}

CUresult hook_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
				 char *logBuffer, size_t bufferSize)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer,
						 bufferSize);
	return instantiated(result, phGraphExec, hGraph, 0);
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
				    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer,
						    bufferSize);
	return instantiated(result, phGraphExec, hGraph, 0);
}

CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
					  unsigned long long flags)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags);
	return instantiated(result, phGraphExec, hGraph, flags);
}

CUresult hook_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
	return instantiated(result, phGraphExec, hGraph, result ? 0 : instantiateParams->flags);
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
						CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph,
								instantiateParams);
	return instantiated(result, phGraphExec, hGraph, result ? 0 : instantiateParams->flags);
}

static CUresult updated(CUresult result, CUgraphExec exec, CUgraph graph)
{
	if (!result)
		graphs_updated(exec, graph);
	return result;
}

CUresult hook_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
				CUgraphExecUpdateResult *updateResult_out)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out,
						updateResult_out);
	return updated(result, hGraphExec, hGraph);
}

CUresult hook_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
				   CUgraphExecUpdateResultInfo *resultInfo)
{
	CUresult result = graphs_usable(hGraph);

	if (!result)
		result = real.cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo);
	return updated(result, hGraphExec, hGraph);
}

/* There is no call that does it to the node of a graph. */
CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 CUgraph childGraph)
{
	CUresult result = graphs_usable(childGraph);

	if (!result)
		result = real.cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph);
	if (!result)
		graphs_fix(hGraphExec, "a child graph that was changed after the instantiation");
	return result;
}

/* Whether an update leaves nodes disabled is not documented. */
CUresult hook_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
				    unsigned int isEnabled)
{
	CUresult result = real.cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);

	if (!result && !isEnabled)
		graphs_fix(hGraphExec, "nodes that were disabled");
	return result;
}

CUresult hook_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	graphs_exec_remove(hGraphExec);
	return real.cuGraphExecDestroy(hGraphExec);
}
