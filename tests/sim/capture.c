/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture. The nodes of a captured graph are the operations in the order in which they were
 * submitted, whatever streams they came from.
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

CUresult capture_check_synchronize(const struct sim_ctx *ctx)
{
	CUresult result = capture_check_unsafe();

	for (struct sim_capture *c = sim.captures; c; c = c->next) {
		unsigned long owner = c->origin->thread;

		/* The stream of another thread may have ended with it, which is not seen here. */
		if (c->origin->ctx != ctx || (owner && owner != sim_thread_id()))
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

static CUgraphNodeType node_type(const struct sim_op *op)
{
	switch (op->kind) {
	case OP_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case OP_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case OP_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	default:
		return CU_GRAPH_NODE_TYPE_HOST;
	}
}

CUresult capture_add(struct sim_stream *s, struct sim_op *op)
{
	struct sim_capture *c = s->capture;
	struct sim_node *node;

	if (op->kind > OP_HOST)
		c->invalid = true;
	if (c->invalid) {
		CUresult result = op->kind > OP_HOST ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
						     : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

		op_free(op);
		return result;
	}
	return node_new(c->graph, node_type(op), op, &node);
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

void capture_stream_ends(struct sim_stream *s)
{
	struct sim_capture *c = s->capture;
	struct sim_graph *g;

	if (!c || c->origin != s)
		return;
	g = c->graph;
	capture_close(c);
	graph_free(g);
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
