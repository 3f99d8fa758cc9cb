/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_GRAPH_NODE_H
#define CUDAW_WRAPPER_GRAPH_NODE_H
/*
 * graph_node: the parameters of a graph's node, with virtual addresses in them. The driver has real
 * addresses: reading translates them, and writing puts the current ones in.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct graph_node {
	struct graph_node *next;
	CUgraphNode node;
	CUgraphNodeType type;
	union {
		CUDA_KERNEL_NODE_PARAMS_v2 kernel; /* its parameters lie in room */
		CUDA_MEMCPY3D_v2 copy;
		CUDA_MEMSET_NODE_PARAMS set;
		CUDA_BATCH_MEM_OP_NODE_PARAMS ops; /* as do these */
	};
	void *room;     /* begins with the parameters, or the operations */
	size_t size;    /* of these */
	void *extra[5]; /* of a kernel whose parameters are packed */
	bool unclear;   /* it has an address that may belong to several allocations */
};

/*
 * Read the parameters of @node, which is of @type, into *@read, for graph_node_free(). *@read is
 * NULL if there is no address of ours in them. Returns NULL, or the part of the node that cannot be
 * written again.
 */
const char *graph_node_read(CUgraphNode node, CUgraphNodeType type, struct graph_node **read);

/* NULL, or the part of the kernel at @node, beside its parameters, that cannot be written again. */
const char *graph_node_kernel_fixed(CUgraphNode node);

/* True if the kernel at @node ends with @owner (images_is_of()). */
bool graph_node_kernel_is_of(CUgraphNode node, const void *owner);

/* Write the parameters to the node, with the current addresses. */
CUresult graph_node_write(const struct graph_node *node);

/* True if two kernels, or two lists of operations, are the same. */
bool graph_node_same(const struct graph_node *a, const struct graph_node *b);

void graph_node_free(struct graph_node *node);

#endif
