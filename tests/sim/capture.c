/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture and graphs. A graph is the list of the captured operations in the order in which
 * they were submitted, whatever streams they came from; a launch submits copies of them to one
 * stream in that order.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

/* The rules of cuThreadExchangeStreamCaptureMode. */
static bool forbids(const struct sim_capture *c)
{
	bool own = c->thread == sim_thread_id();

	if (sim_thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (own)
		return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return sim_thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	for (struct sim_capture *c = sim.captures; c; c = c->next) {
		if (!forbids(c))
			continue;
		c->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

bool capture_blocks_legacy(const struct sim_ctx *ctx)
{
	for (const struct sim_stream *s = ctx->streams; s; s = s->next)
		if (s->capture && s->blocking)
			return true;
	return false;
}

void capture_invalidate(struct sim_ctx *ctx)
{
	for (struct sim_stream *s = ctx->streams; s; s = s->next)
		if (s->capture && s->blocking)
			s->capture->invalid = true;
}

CUresult capture_add(struct sim_stream *s, struct sim_op *op)
{
	struct sim_capture *c = s->capture;

	if (op->kind > OP_HOST)
		c->invalid = true;
	if (c->invalid) {
		CUresult result = op->kind > OP_HOST ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
						     : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

		op_free(op);
		return result;
	}
	*c->graph->tail = op;
	c->graph->tail = &op->next;
	return CUDA_SUCCESS;
}

static struct sim_graph *graph_new(void)
{
	struct sim_graph *g = calloc(1, sizeof(*g));

	if (g)
		g->tail = &g->head;
	return g;
}

static void graph_free(struct sim_graph *g)
{
	while (g->head) {
		struct sim_op *op = g->head;

		g->head = op->next;
		op_free(op);
	}
	graph_memory_put(g->memory);
	free(g);
}

static CUresult begin_capture(bool ptds, CUstream stream, CUstreamCaptureMode mode)
{
	struct sim_capture *c;
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	if (result != CUDA_SUCCESS)
		return result;
	if (s->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	c = calloc(1, sizeof(*c));
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->graph = graph_new();
	if (!c->graph) {
		free(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->origin = s;
	c->mode = mode;
	c->thread = sim_thread_id();
	c->id = ++sim.next_id;
	c->next = sim.captures;
	sim.captures = c;
	s->capture = c;
	return CUDA_SUCCESS;
}

SIM_TWINS(cuStreamBeginCapture_v2, _ptsz, begin_capture,
	  (CUstream stream, CUstreamCaptureMode mode), stream, mode)

/* Nothing refers to the capture any more after this. */
static void capture_close(struct sim_capture *c)
{
	struct sim_capture **p = &sim.captures;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	for (struct sim_object *o = sim.objects[KIND_STREAM]; o; o = o->next)
		if (((struct sim_stream *)o)->capture == c)
			((struct sim_stream *)o)->capture = NULL;
	for (struct sim_object *o = sim.objects[KIND_EVENT]; o; o = o->next)
		if (((struct sim_event *)o)->capture == c)
			((struct sim_event *)o)->capture = NULL;
	free(c);
}

static CUresult end_capture(bool ptds, CUstream stream, CUgraph *graph)
{
	struct sim_capture *c;
	struct sim_graph *g;
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);
	bool invalid;

	if (result != CUDA_SUCCESS)
		return result;
	c = s->capture;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->origin != s)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != sim_thread_id())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	g = c->graph;
	invalid = c->invalid;
	capture_close(c);
	*graph = NULL;
	if (invalid) {
		graph_free(g);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	object_add(KIND_GRAPH, &g->obj);
	*graph = (CUgraph)g;
	return CUDA_SUCCESS;
}

SIM_TWINS(cuStreamEndCapture, _ptsz, end_capture, (CUstream stream, CUgraph *graph), stream, graph)

static CUresult capture_info(bool ptds, CUstream stream, CUstreamCaptureStatus *status,
			     cuuint64_t *id, CUgraph *graph, size_t *dependencies)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	if (result != CUDA_SUCCESS)
		return result;
	if (s->legacy && capture_blocks_legacy(s->ctx))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!s->capture)
		return CUDA_SUCCESS;
	*status = s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (id)
		*id = s->capture->id;
	if (graph)
		*graph = (CUgraph)s->capture->graph;
	if (dependencies)
		*dependencies = 0;
	return CUDA_SUCCESS;
}

SIM_TWINS(cuStreamIsCapturing, _ptsz, capture_info,
	  (CUstream stream, CUstreamCaptureStatus *status), stream, status, NULL, NULL, NULL)

SIM_TWINS(cuStreamGetCaptureInfo, _ptsz, capture_info,
	  (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), stream, status, id,
	  NULL, NULL)

static CUresult capture_info_nodes(bool ptds, CUstream stream, CUstreamCaptureStatus *status,
				   cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
				   size_t *count)
{
	if (nodes)
		*nodes = NULL;
	return capture_info(ptds, stream, status, id, graph, count);
}

SIM_TWINS(cuStreamGetCaptureInfo_v2, _ptsz, capture_info_nodes,
	  (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	   const CUgraphNode **nodes, size_t *count),
	  stream, status, id, graph, nodes, count)

static CUresult capture_info_edges(bool ptds, CUstream stream, CUstreamCaptureStatus *status,
				   cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
				   const CUgraphEdgeData **edges, size_t *count)
{
	if (edges)
		*edges = NULL;
	return capture_info_nodes(ptds, stream, status, id, graph, nodes, count);
}

SIM_TWINS(cuStreamGetCaptureInfo_v3, _ptsz, capture_info_edges,
	  (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	   const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),
	  stream, status, id, graph, nodes, edges, count)

SIM_EXPORT cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old;

	SIM_ENTER(cuThreadExchangeStreamCaptureMode, NEED_INIT);
	old = sim_thread.capture_mode;
	if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	sim_thread.capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph handle)
{
	struct sim_graph *g = (struct sim_graph *)handle, *e;

	if (!object_known(KIND_GRAPH, g))
		return CUDA_ERROR_INVALID_VALUE;
	e = graph_new();
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (struct sim_op *op = g->head; op; op = op->next) {
		*e->tail = op_copy(op);
		if (!*e->tail) {
			graph_free(e);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		e->tail = &(*e->tail)->next;
	}
	e->memory = graph_memory_get(g->memory);
	object_add(KIND_EXEC, &e->obj);
	*exec = (CUgraphExec)e;
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

static CUresult destroy(enum sim_kind kind, struct sim_graph *g)
{
	if (!object_known(kind, g))
		return CUDA_ERROR_INVALID_VALUE;
	object_remove(&g->obj);
	graph_free(g);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuGraphDestroy(CUgraph graph)
{
	SIM_ENTER(cuGraphDestroy, NEED_CONTEXT);
	return destroy(KIND_GRAPH, (struct sim_graph *)graph);
}

SIM_EXPORT cuGraphExecDestroy(CUgraphExec exec)
{
	SIM_ENTER(cuGraphExecDestroy, NEED_CONTEXT);
	return destroy(KIND_EXEC, (struct sim_graph *)exec);
}

static CUresult graph_launch(bool ptds, CUgraphExec exec, CUstream stream)
{
	struct sim_graph *g = (struct sim_graph *)exec;
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	if (result == CUDA_SUCCESS && !object_known(KIND_EXEC, g))
		result = CUDA_ERROR_INVALID_VALUE;
	for (struct sim_op *op = result ? NULL : g->head; op; op = op->next) {
		struct sim_op *copy = op_copy(op);

		result = copy ? stream_submit(s, copy) : CUDA_ERROR_OUT_OF_MEMORY;
		if (result != CUDA_SUCCESS)
			break;
	}
	return result;
}

SIM_TWINS(cuGraphLaunch, _ptsz, graph_launch, (CUgraphExec exec, CUstream stream), exec, stream)
