/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation nodes of graphs. Unlike a GPU's, the memory is there from the capture of its
 * allocation until the last graph with that node is destroyed, and a free does nothing, in the
 * graph or later: the next launch allocates the same bytes again. The nodes of both do nothing.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

/* What graphs have, what the driver holds for them until it is trimmed, and the most of it. */
static size_t used[SIM_MAX_DEVICES], reserved[SIM_MAX_DEVICES], high[SIM_MAX_DEVICES];

CUresult graph_memory_alloc(struct sim_capture *c, struct sim_ctx *ctx, size_t size,
			    CUdeviceptr *ptr)
{
	struct sim_graph_memory *m = c->graph->memory;
	struct sim_node *node;
	CUresult result;

	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return CUDA_ERROR_OUT_OF_MEMORY;
		m->refs = 1;
		m->ctx = ctx;
		c->graph->memory = m;
	}
	if (m->ctx != ctx || m->count == sizeof(m->ptrs) / sizeof(m->ptrs[0]))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = memory_new(ctx, size, MAP_GRAPH, ptr);
	if (result != CUDA_SUCCESS)
		return result;
	m->ptrs[m->count++] = *ptr;
	used[ctx->dev] += size;
	reserved[ctx->dev] += size;
	if (high[ctx->dev] < reserved[ctx->dev])
		high[ctx->dev] = reserved[ctx->dev];
	return node_new(c->graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, NULL, &node);
}

CUresult graph_memory_free(struct sim_capture *c, CUdeviceptr ptr)
{
	const struct sim_graph_memory *m = c->graph->memory;
	struct sim_node *node;

	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	for (size_t i = 0; m && i < m->count; i++)
		if (m->ptrs[i] == ptr)
			return node_new(c->graph, CU_GRAPH_NODE_TYPE_MEM_FREE, NULL, &node);
	return CUDA_ERROR_NOT_SUPPORTED;
}

struct sim_graph_memory *graph_memory_get(struct sim_graph_memory *m)
{
	if (m)
		m->refs++;
	return m;
}

void graph_memory_put(struct sim_graph_memory *m)
{
	if (!m || --m->refs)
		return;
	/* A launch may still run. The end of the context, if that came first, has freed it all. */
	ctx_wait(m->ctx);
	for (size_t i = 0; i < m->count; i++) {
		struct sim_map *map = map_find(m->ptrs[i]);

		if (!map || map->start != m->ptrs[i] || map->kind != MAP_GRAPH)
			continue;
		used[map->dev] -= map->size;
		memory_free(map);
	}
	free(m);
}

SIM_EXPORT cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
	SIM_ENTER(cuDeviceGetGraphMemAttribute, NEED_HEALTHY);
	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = attr == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT       ? used[dev]
			       : attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved[dev]
										: high[dev];
	return CUDA_SUCCESS;
}

SIM_EXPORT cuDeviceGraphMemTrim(CUdevice dev)
{
	SIM_ENTER(cuDeviceGraphMemTrim, NEED_HEALTHY);
	if (dev < 0 || dev >= sim.config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	reserved[dev] = used[dev];
	return CUDA_SUCCESS;
}
