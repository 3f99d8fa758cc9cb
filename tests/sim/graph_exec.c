/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instantiated graphs: copies of what the nodes did at that moment, those of child graphs in their
 * parent's place. A launch submits copies of these to one stream.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

static void exec_free(struct sim_exec *e)
{
	while (e->head) {
		struct sim_op *op = e->head;

		e->head = op->next;
		op_free(op);
	}
	graph_memory_put(e->memory);
	free(e);
}

static CUresult exec_add(struct sim_exec *e, const struct sim_graph *g)
{
	CUresult result = CUDA_SUCCESS;

	for (const struct sim_node *node = g->head; node && !result; node = node->next) {
		if (node->child)
			result = exec_add(e, node->child);
		if (!node->op)
			continue;
		*e->tail = op_copy(node->op);
		if (!*e->tail)
			return CUDA_ERROR_OUT_OF_MEMORY;
		(*e->tail)->node = node->id;
		e->tail = &(*e->tail)->next;
	}
	return result;
}

static CUresult exec_new(const struct sim_graph *g, struct sim_exec **exec)
{
	struct sim_exec *e = calloc(1, sizeof(*e));
	CUresult result;

	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->tail = &e->head;
	result = exec_add(e, g);
	if (result) {
		exec_free(e);
		return result;
	}
	e->memory = graph_memory_get(g->memory);
	*exec = e;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph)
{
	struct sim_graph *g = graph_find(graph);
	struct sim_exec *e;
	CUresult result = g ? exec_new(g, &e) : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	object_add(KIND_EXEC, &e->obj);
	*handle = (CUgraphExec)e;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	SIM_ENTER(cuGraphInstantiateWithFlags, NEED_CONTEXT);
	(void)flags;
	return instantiate(exec, graph);
}

SIM_EXPORT cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				 char *log, size_t log_size)
{
	SIM_ENTER(cuGraphInstantiate_v2, NEED_CONTEXT);
	if (error_node)
		*error_node = NULL;
	if (log && log_size)
		*log = '\0';
	return instantiate(exec, graph);
}

static struct sim_exec *exec_find(CUgraphExec handle)
{
	return object_known(KIND_EXEC, handle) ? (struct sim_exec *)handle : NULL;
}

SIM_EXPORT cuGraphExecDestroy(CUgraphExec handle)
{
	struct sim_exec *e;

	SIM_ENTER(cuGraphExecDestroy, NEED_INIT);
	e = exec_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	object_remove(&e->obj);
	exec_free(e);
	return CUDA_SUCCESS;
}

/* Let @to, which keeps its place and its node, do what @from does, and the reverse. */
static void exchange(struct sim_op *to, struct sim_op *from)
{
	struct sim_op old = *to;

	*to = *from;
	to->next = old.next;
	to->node = old.node;
	old.next = from->next;
	*from = old;
}

static bool same_shape(const struct sim_exec *e, const struct sim_exec *other)
{
	const struct sim_op *a = e->head, *b = other->head;

	for (; a && b && a->kind == b->kind; a = a->next, b = b->next)
		;
	return !a && !b;
}

SIM_EXPORT cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph,
				CUgraphExecUpdateResultInfo *info)
{
	struct sim_exec *e, *other;
	struct sim_graph *g;
	CUresult result;

	SIM_ENTER(cuGraphExecUpdate_v2, NEED_CONTEXT);
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	e = exec_find(handle);
	g = graph_find(graph);
	*info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	if (!e || !g)
		return CUDA_ERROR_INVALID_VALUE;
	result = exec_new(g, &other);
	if (result)
		return result;
	if (same_shape(e, other)) {
		for (struct sim_op *a = e->head, *b = other->head; a; a = a->next, b = b->next)
			exchange(a, b);
		info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	} else {
		info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	exec_free(other);
	return result;
}

/* Let the operation that is @handle's in the instantiated graph be @op, which it takes over. */
static CUresult change(CUgraphExec exec, CUgraphNode handle, struct sim_op *op)
{
	struct sim_exec *e = exec_find(exec);
	struct sim_node *node = node_find(handle);
	struct sim_op *old = e && node ? e->head : NULL;

	while (old && (old->node != node->id || old->kind != op->kind))
		old = old->next;
	if (old)
		exchange(old, op);
	op_free(op);
	return old ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
					     const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphExecKernelNodeSetParams_v2, NEED_INIT);
	result = kernel_op(p->func, (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ,
			   (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ, p->kernelParams,
			   p->extra, &op);
	return result ? result : change(exec, node, op);
}

SIM_EXPORT cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
					  const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphExecMemcpyNodeSetParams, NEED_INIT);
	result =
		ctx_find(ctx) ? node_op_copy(ctx_find(ctx), copy, &op) : CUDA_ERROR_INVALID_CONTEXT;
	return result ? result : change(exec, node, op);
}

SIM_EXPORT cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					  const CUDA_MEMSET_NODE_PARAMS *set, CUcontext ctx)
{
	struct sim_op *op;
	CUresult result;

	SIM_ENTER(cuGraphExecMemsetNodeSetParams, NEED_INIT);
	result = ctx_find(ctx) ? node_op_set(ctx_find(ctx), set, &op) : CUDA_ERROR_INVALID_CONTEXT;
	return result ? result : change(exec, node, op);
}

static CUresult graph_launch(bool ptds, CUgraphExec handle, CUstream stream)
{
	struct sim_exec *e = exec_find(handle);
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	if (result == CUDA_SUCCESS && !e)
		result = CUDA_ERROR_INVALID_VALUE;
	for (struct sim_op *op = result ? NULL : e->head; op; op = op->next) {
		struct sim_op *copy = op_copy(op);

		result = copy ? stream_submit(s, copy) : CUDA_ERROR_OUT_OF_MEMORY;
		if (result != CUDA_SUCCESS)
			break;
	}
	return result;
}

SIM_TWINS(cuGraphLaunch, _ptsz, graph_launch, (CUgraphExec exec, CUstream stream), exec, stream)
