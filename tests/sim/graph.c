/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs and their nodes. A launch runs the nodes one after the other, in the order in which they
 * were added: each comes after those that it depends on, so edges are not kept.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_graph *graph_new(void)
{
	struct sim_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->tail = &g->head;
	object_add(KIND_GRAPH, &g->obj);
	return g;
}

static void node_free(struct sim_node *node)
{
	object_remove(&node->obj);
	if (node->op)
		op_free(node->op);
	if (node->child)
		graph_free(node->child);
	free(node);
}

void graph_free(struct sim_graph *g)
{
	while (g->head) {
		struct sim_node *node = g->head;

		g->head = node->next;
		node_free(node);
	}
	object_remove(&g->obj);
	graph_memory_put(g->memory);
	free(g);
}

struct sim_graph *graph_find(CUgraph handle)
{
	return object_known(KIND_GRAPH, handle) ? (struct sim_graph *)handle : NULL;
}

struct sim_node *node_find(CUgraphNode handle)
{
	return object_known(KIND_NODE, handle) ? (struct sim_node *)handle : NULL;
}

CUresult node_new(struct sim_graph *graph, CUgraphNodeType type, struct sim_op *op,
		  struct sim_node **node)
{
	struct sim_node *n = calloc(1, sizeof(*n));

	if (!n) {
		if (op)
			op_free(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	n->graph = graph;
	n->id = ++sim.next_id;
	n->type = type;
	n->op = op;
	*graph->tail = n;
	graph->tail = &n->next;
	object_add(KIND_NODE, &n->obj);
	*node = n;
	return CUDA_SUCCESS;
}

static CUresult node_clone(struct sim_graph *graph, const struct sim_node *from);

static CUresult graph_clone(const struct sim_graph *from, struct sim_graph **clone)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_graph *g;

	if (from->memory)
		return CUDA_ERROR_NOT_SUPPORTED;
	g = graph_new();
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (const struct sim_node *n = from->head; n && !result; n = n->next)
		result = node_clone(g, n);
	if (result)
		graph_free(g);
	else
		*clone = g;
	return result;
}

static CUresult node_clone(struct sim_graph *graph, const struct sim_node *from)
{
	struct sim_op *op = from->op ? op_copy(from->op) : NULL;
	struct sim_node *node;
	CUresult result;

	if (from->op && !op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = node_new(graph, from->type, op, &node);
	if (result)
		return result;
	node->origin = from->id;
	node->window = from->window;
	if (from->child)
		result = graph_clone(from->child, &node->child);
	if (node->child)
		node->child->owned = true;
	return result;
}

SIM_EXPORT cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	SIM_ENTER(cuGraphCreate, NEED_INIT);
	if (!graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = (CUgraph)graph_new();
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_EXPORT cuGraphClone(CUgraph *clone, CUgraph original)
{
	struct sim_graph *g;

	SIM_ENTER(cuGraphClone, NEED_INIT);
	g = graph_find(original);
	return g ? graph_clone(g, (struct sim_graph **)clone) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT cuGraphDestroy(CUgraph graph)
{
	struct sim_graph *g;

	SIM_ENTER(cuGraphDestroy, NEED_INIT);
	g = graph_find(graph);
	if (!g || g->owned)
		return CUDA_ERROR_INVALID_VALUE;
	graph_free(g);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphDestroyNode(CUgraphNode handle)
{
	struct sim_node *node, **link;

	SIM_ENTER(cuGraphDestroyNode, NEED_INIT);
	node = node_find(handle);
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	for (link = &node->graph->head; *link != node; link = &(*link)->next)
		;
	*link = node->next;
	if (!node->next)
		node->graph->tail = link;
	node_free(node);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	struct sim_graph *g;
	size_t n = 0, room;

	SIM_ENTER(cuGraphGetNodes, NEED_INIT);
	g = graph_find(graph);
	if (!g || !count)
		return CUDA_ERROR_INVALID_VALUE;
	room = *count;
	for (struct sim_node *node = g->head; node; node = node->next, n++)
		if (nodes && n < room)
			nodes[n] = (CUgraphNode)node;
	for (size_t i = n; nodes && i < room; i++)
		nodes[i] = NULL;
	if (!nodes || n < room)
		*count = n;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	struct sim_node *node;

	SIM_ENTER(cuGraphNodeGetType, NEED_INIT);
	node = node_find(handle);
	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

/* In @graph, or in those that its nodes own. */
static struct sim_node *find_origin(struct sim_graph *graph, unsigned long long id)
{
	struct sim_node *found = NULL;

	for (struct sim_node *node = graph->head; node && !found; node = node->next) {
		if (node->origin == id)
			found = node;
		else if (node->child)
			found = find_origin(node->child, id);
	}
	return found;
}

SIM_EXPORT cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original, CUgraph clone)
{
	struct sim_graph *g;
	struct sim_node *node;

	SIM_ENTER(cuGraphNodeFindInClone, NEED_INIT);
	g = graph_find(clone);
	node = node_find(original);
	if (!g || !node || !found)
		return CUDA_ERROR_INVALID_VALUE;
	node = find_origin(g, node->id);
	*found = (CUgraphNode)node;
	return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* @handle, or the current context where it is NULL. */
static const struct sim_ctx *ctx_or_current(CUcontext handle)
{
	return handle ? ctx_find(handle) : ctx_current();
}

static CUresult add(CUgraphNode *handle, CUgraph graph, CUgraphNodeType type, struct sim_op *op)
{
	struct sim_graph *g = graph_find(graph);

	if (g)
		return node_new(g, type, op, (struct sim_node **)handle);
	if (op)
		op_free(op);
	return CUDA_ERROR_INVALID_VALUE;
}

/* Let @handle do @op, which it then owns. */
static CUresult change(CUgraphNode handle, CUgraphNodeType type, struct sim_op *op)
{
	struct sim_node *node = node_find(handle);

	if (!node || node->type != type) {
		op_free(op);
		return CUDA_ERROR_INVALID_VALUE;
	}
	op_free(node->op);
	node->op = op;
	return CUDA_SUCCESS;
}

static CUresult of_kernel(const CUDA_KERNEL_NODE_PARAMS *p, struct sim_op **op)
{
	return kernel_op(p->func ? p->func : (CUfunction)p->kern,
			 (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ,
			 (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ, p->kernelParams,
			 p->extra, op);
}

SIM_EXPORT cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				   size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphAddKernelNode_v2, NEED_CONTEXT);
	(void)after;
	(void)count;
	result = of_kernel(params, &op);
	return result ? result : add(node, graph, CU_GRAPH_NODE_TYPE_KERNEL, op);
}

SIM_EXPORT cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphKernelNodeSetParams_v2, NEED_INIT);
	result = of_kernel(params, &op);
	return result ? result : change(node, CU_GRAPH_NODE_TYPE_KERNEL, op);
}

SIM_EXPORT cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
	struct sim_node *node;

	SIM_ENTER(cuGraphKernelNodeGetParams_v2, NEED_INIT);
	node = node_find(handle);
	if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	kernel_op_params(node->op, node->params);
	*params = (CUDA_KERNEL_NODE_PARAMS){
		.func = node->op->kernel.function,
		.gridDimX = node->op->kernel.grid,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = node->op->kernel.block,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = node->params,
	};
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attr,
					 const CUkernelNodeAttrValue *value)
{
	struct sim_node *node;

	SIM_ENTER(cuGraphKernelNodeSetAttribute, NEED_INIT);
	node = node_find(handle);
	if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL ||
	    attr != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		return CUDA_ERROR_INVALID_VALUE;
	node->window = value->accessPolicyWindow;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attr,
					 CUkernelNodeAttrValue *value)
{
	struct sim_node *node;

	SIM_ENTER(cuGraphKernelNodeGetAttribute, NEED_INIT);
	node = node_find(handle);
	if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	memset(value, 0, sizeof(*value));
	if (attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		value->accessPolicyWindow = node->window;
	return CUDA_SUCCESS;
}

/* Where the copy or the set of a node runs; NULL: it is no node, or does neither. */
static const struct sim_ctx *node_ctx(CUgraphNode handle)
{
	struct sim_node *node = node_find(handle);

	return node && node->op ? node->op->ctx : NULL;
}

/* Of memory in one piece. */
CUresult node_op_copy(const struct sim_ctx *ctx, const CUDA_MEMCPY3D *c, struct sim_op **op)
{
	CUdeviceptr src =
		c->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)c->srcHost : c->srcDevice;
	CUdeviceptr dst =
		c->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)c->dstHost : c->dstDevice;

	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY ||
	    c->Height > 1 || c->Depth > 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	src += c->srcXInBytes;
	dst += c->dstXInBytes;
	if ((c->srcMemoryType != CU_MEMORYTYPE_HOST &&
	     !map_reached(ctx, src, c->WidthInBytes, true)) ||
	    (c->dstMemoryType != CU_MEMORYTYPE_HOST &&
	     !map_reached(ctx, dst, c->WidthInBytes, true)))
		return CUDA_ERROR_INVALID_VALUE;
	*op = op_new(OP_COPY);
	if (!*op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*op)->copy.dst = (void *)dst;
	(*op)->copy.src = (const void *)src;
	(*op)->copy.size = c->WidthInBytes;
	(*op)->copy.direction = (int)copy_direction(dst, src);
	(*op)->ctx = ctx;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				size_t count, const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphAddMemcpyNode, NEED_INIT);
	(void)after;
	(void)count;
	result =
		ctx_find(ctx) ? node_op_copy(ctx_find(ctx), copy, &op) : CUDA_ERROR_INVALID_CONTEXT;
	return result ? result : add(node, graph, CU_GRAPH_NODE_TYPE_MEMCPY, op);
}

SIM_EXPORT cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphMemcpyNodeSetParams, NEED_INIT);
	result =
		node_ctx(node) ? node_op_copy(node_ctx(node), copy, &op) : CUDA_ERROR_INVALID_VALUE;
	return result ? result : change(node, CU_GRAPH_NODE_TYPE_MEMCPY, op);
}

static CUmemorytype memory_type(const void *ptr)
{
	const struct sim_map *map = map_find((CUdeviceptr)ptr);

	return map && map->kind < MAP_HOST ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

SIM_EXPORT cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *copy)
{
	struct sim_node *node;
	struct sim_op *op;

	SIM_ENTER(cuGraphMemcpyNodeGetParams, NEED_INIT);
	node = node_find(handle);
	if (!node || node->type != CU_GRAPH_NODE_TYPE_MEMCPY)
		return CUDA_ERROR_INVALID_VALUE;
	op = node->op;
	*copy = (CUDA_MEMCPY3D){
		.srcMemoryType = memory_type(op->copy.src),
		.dstMemoryType = memory_type(op->copy.dst),
		.WidthInBytes = op->copy.size,
		.Height = 1,
		.Depth = 1,
	};
	if (copy->srcMemoryType == CU_MEMORYTYPE_HOST)
		copy->srcHost = op->copy.src;
	else
		copy->srcDevice = (CUdeviceptr)op->copy.src;
	if (copy->dstMemoryType == CU_MEMORYTYPE_HOST)
		copy->dstHost = op->copy.dst;
	else
		copy->dstDevice = (CUdeviceptr)op->copy.dst;
	return CUDA_SUCCESS;
}

CUresult node_op_set(const struct sim_ctx *ctx, const CUDA_MEMSET_NODE_PARAMS *p,
		     struct sim_op **op)
{
	if (p->height > 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (p->dst % p->elementSize || !map_reached(ctx, p->dst, p->width * p->elementSize, false))
		return CUDA_ERROR_INVALID_VALUE;
	*op = op_new(OP_SET);
	if (!*op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*op)->set.dst = (void *)p->dst;
	(*op)->set.value = p->value;
	(*op)->set.width = p->elementSize;
	(*op)->set.count = p->width;
	(*op)->ctx = ctx;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				size_t count, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext ctx)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphAddMemsetNode, NEED_INIT);
	(void)after;
	(void)count;
	result = ctx_find(ctx) ? node_op_set(ctx_find(ctx), set, &op) : CUDA_ERROR_INVALID_CONTEXT;
	return result ? result : add(node, graph, CU_GRAPH_NODE_TYPE_MEMSET, op);
}

SIM_EXPORT cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphMemsetNodeSetParams, NEED_INIT);
	result = node_ctx(node) ? node_op_set(node_ctx(node), set, &op) : CUDA_ERROR_INVALID_VALUE;
	return result ? result : change(node, CU_GRAPH_NODE_TYPE_MEMSET, op);
}

SIM_EXPORT cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *set)
{
	struct sim_node *node;

	SIM_ENTER(cuGraphMemsetNodeGetParams, NEED_INIT);
	node = node_find(handle);
	if (!node || node->type != CU_GRAPH_NODE_TYPE_MEMSET)
		return CUDA_ERROR_INVALID_VALUE;
	*set = (CUDA_MEMSET_NODE_PARAMS){
		.dst = (CUdeviceptr)node->op->set.dst,
		.value = (unsigned int)node->op->set.value,
		.elementSize = (unsigned int)node->op->set.width,
		.width = node->op->set.count,
		.height = 1,
	};
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			       size_t count)
{
	SIM_ENTER(cuGraphAddEmptyNode, NEED_INIT);
	(void)after;
	(void)count;
	return add(node, graph, CU_GRAPH_NODE_TYPE_EMPTY, NULL);
}

SIM_EXPORT cuGraphAddChildGraphNode(CUgraphNode *handle, CUgraph graph, const CUgraphNode *after,
				    size_t count, CUgraph child)
{
	struct sim_graph *c, *clone;
	CUresult result;

	SIM_ENTER(cuGraphAddChildGraphNode, NEED_INIT);
	(void)after;
	(void)count;
	c = graph_find(child);
	result = c ? graph_clone(c, &clone) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		return result;
	result = add(handle, graph, CU_GRAPH_NODE_TYPE_GRAPH, NULL);
	if (result) {
		graph_free(clone);
		return result;
	}
	clone->owned = true;
	((struct sim_node *)*handle)->child = clone;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph)
{
	struct sim_node *node;

	SIM_ENTER(cuGraphChildGraphNodeGetGraph, NEED_INIT);
	node = node_find(handle);
	if (!node || !node->child)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = (CUgraph)node->child;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			     const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
	CUDA_MEMSET_NODE_PARAMS set;
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphAddNode_v2, NEED_CONTEXT);
	(void)after;
	(void)edges;
	(void)count;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		result = kernel_op(params->kernel.func, params->kernel.gridDimX,
				   params->kernel.blockDimX, params->kernel.kernelParams,
				   params->kernel.extra, &op);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		result = node_op_copy(ctx_or_current(params->memcpy.copyCtx),
				      &params->memcpy.copyParams, &op);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&set, &params->memset, sizeof(set));
		result = node_op_set(ctx_or_current(params->memset.ctx), &set, &op);
		break;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return result ? result : add(node, graph, params->type, op);
}
