/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_GRAPH_NODE_H
#define CUDAW_WRAPPER_GRAPH_NODE_H
/*
 * graph_node: the parameters of a graph's node with virtual addresses in them. The driver has the
 * real ones; what was read is written again with those of then.
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
	bool unclear;   /* it has an address of which it is not certain whose it is */
};

/*
 * What @node, of @type, does, in *@read, to be freed by graph_node_free(); NULL where there is no
 * address of ours in it. Returns NULL, or what the node has that cannot be written again.
 */
const char *graph_node_read(CUgraphNode node, CUgraphNodeType type, struct graph_node **read);

/* What the kernel at @node has, beside its parameters, that cannot be written again; or NULL. */
const char *graph_node_kernel_fixed(CUgraphNode node);

/* True where the kernel at @node ends with @owner (images_is_of()). */
bool graph_node_kernel_is_of(CUgraphNode node, const void *owner);

/* Let the node do that, wherever the memory is now. */
CUresult graph_node_write(const struct graph_node *node);

/* True where two kernels, or two lists of operations, are the same. */
bool graph_node_same(const struct graph_node *a, const struct graph_node *b);

void graph_node_free(struct graph_node *node);

#endif
