/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/graph_node.h"
#include "wrapper/kernels/images.h"
#include "wrapper/kernels/launch.h"
#include "wrapper/real.h"
#include "wrapper/translated/before.h"
#include "wrapper/translated/rewrite.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "more nodes than there is host memory for";
static const char unreadable[] = "a node that the driver does not show";

/* The first version, of drivers before 12.0, is how the second begins. */
_Static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern) == sizeof(CUDA_KERNEL_NODE_PARAMS_v1),
	       "the two versions differ");

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	memset(params, 0, sizeof(*params));
	if (real.cuGraphKernelNodeGetParams_v2)
		return real.cuGraphKernelNodeGetParams_v2(node, params);
	return real.cuGraphKernelNodeGetParams(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)params);
}

static CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	if (real.cuGraphKernelNodeSetParams_v2)
		return real.cuGraphKernelNodeSetParams_v2(node, params);
	return real.cuGraphKernelNodeSetParams(node, (const CUDA_KERNEL_NODE_PARAMS_v1 *)params);
}

static CUfunction function_of(const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return params->func ? params->func : (CUfunction)params->kern;
}

/* Copy the packed parameters. True if there are addresses of ours in them. */
static bool take_buffer(struct graph_node *n, const struct kp_kernel *kernel, const char *buffer)
{
	bool found = false;

	memcpy(n->room, buffer, n->size);
	for (uint32_t i = 0; i < kernel->nparams; i++)
		found |= rewrite_param_back(
			&kernel->params[i], (char *)n->room + kernel->params[i].offset,
			launch_packed_part(&kernel->params[i], n->size), &n->unclear);
	n->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	n->extra[1] = n->room;
	n->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	n->extra[3] = &n->size;
	n->extra[4] = CU_LAUNCH_PARAM_END;
	n->kernel.extra = n->extra;
	return found;
}

/* The list of pointers to the parameters lies behind them. */
static size_t list_offset(const struct kp_kernel *kernel)
{
	return (kernel->size + sizeof(void *) - 1) & -sizeof(void *);
}

/* The same for parameters that are passed one by one. */
static bool take_params(struct graph_node *n, const struct kp_kernel *kernel)
{
	void **list = (void **)((char *)n->room + list_offset(kernel));
	char *values = n->room;
	bool found = false;

	n->size = kernel->size;

	for (uint32_t i = 0; i < kernel->nparams; i++) {
		list[i] = values + kernel->params[i].offset;
		memcpy(list[i], n->kernel.kernelParams[i], kernel->params[i].size);
		found |= rewrite_param_back(&kernel->params[i], list[i], kernel->params[i].size,
					    &n->unclear);
	}
	n->kernel.kernelParams = list;
	return found;
}

static const char *read_kernel(struct graph_node *n, bool *found)
{
	const struct kp_kernel *kernel;
	const char *buffer = NULL;

	if (get_kernel(n->node, &n->kernel))
		return unreadable;
	kernel = images_layout(function_of(&n->kernel));
	if (!kernel->nparams)
		return *kernel->name ? NULL : "a kernel of which nothing is known";
	if (!n->kernel.kernelParams)
		buffer = launch_packed(n->kernel.extra, &n->size);
	if (!n->kernel.kernelParams && !buffer)
		return NULL;
	n->room = calloc(1,
			 buffer ? n->size : list_offset(kernel) + kernel->nparams * sizeof(void *));
	if (!n->room)
		return no_memory;
	*found = buffer ? take_buffer(n, kernel, buffer) : take_params(n, kernel);
	return NULL;
}

static const char *read_ops(struct graph_node *n, bool *found)
{
	if (real.cuGraphBatchMemOpNodeGetParams(n->node, &n->ops))
		return unreadable;
	n->size = n->ops.count * sizeof(*n->ops.paramArray);
	n->room = malloc(n->size + 1);
	if (!n->room)
		return no_memory;
	n->ops.paramArray = memcpy(n->room, n->ops.paramArray, n->size);
	for (unsigned int i = 0; i < n->ops.count; i++)
		*found |= rewrite_mem_op_back(&n->ops.paramArray[i]);
	return NULL;
}

static const char *read_params(struct graph_node *n, bool *found)
{
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return read_kernel(n, found);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		if (real.cuGraphMemcpyNodeGetParams(n->node, &n->copy))
			return unreadable;
		*found = rewrite_copy_3d_back(&n->copy);
		return NULL;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		if (real.cuGraphMemsetNodeGetParams(n->node, &n->set))
			return unreadable;
		*found = rewrite_pointer_back(&n->set.dst);
		return NULL;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return read_ops(n, found);
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* its memory is not vmem's */
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return NULL;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return "a conditional node";
	default:
		return "a node of an unknown type";
	}
}

const char *graph_node_read(CUgraphNode node, CUgraphNodeType type, struct graph_node **read)
{
	struct graph_node *n = calloc(1, sizeof(*n));
	bool found = false;
	const char *why;

	*read = NULL;
	if (!n)
		return no_memory;
	n->node = node;
	n->type = type;
	why = read_params(n, &found);
	if (why || !found)
		graph_node_free(n);
	else
		*read = n;
	return why;
}

const char *graph_node_kernel_fixed(CUgraphNode node)
{
	CUkernelNodeAttrValue value = {0};

	if (!real.cuGraphKernelNodeGetAttribute)
		return NULL;
	if (!real.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
						&value) &&
	    rewrite_access_policy_back(&value))
		return "a kernel with an access policy window";
	memset(&value, 0, sizeof(value));
	if (!real.cuGraphKernelNodeGetAttribute(
		    node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) &&
	    value.deviceUpdatableKernelNode.deviceUpdatable)
		return "a kernel that the GPU may change";
	return NULL;
}

bool graph_node_kernel_is_of(CUgraphNode node, const void *owner)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params;

	return !get_kernel(node, &params) && images_is_of(function_of(&params), owner);
}

static CUresult write_kernel(const struct graph_node *n)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params = n->kernel;
	struct copies copies;
	CUresult result;

	copies_init(&copies);
	result = before_launch(&copies, function_of(&params), &params.kernelParams, &params.extra);
	if (!result)
		result = set_kernel(n->node, &params);
	copies_free(&copies);
	return result;
}

static CUresult write_ops(const struct graph_node *n)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = n->ops;
	struct copies copies;
	CUresult result;

	copies_init(&copies);
	result = before_mem_ops(&copies, &params.paramArray, params.count);
	if (!result)
		result = real.cuGraphBatchMemOpNodeSetParams(n->node, &params);
	copies_free(&copies);
	return result;
}

CUresult graph_node_write(const struct graph_node *n)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_MEMCPY3D_v2 copy;

	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return write_kernel(n);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		copy = n->copy;
		return real.cuGraphMemcpyNodeSetParams(n->node, rewrite_copy_3d(&copy));
	case CU_GRAPH_NODE_TYPE_MEMSET:
		set = n->set;
		return real.cuGraphMemsetNodeSetParams(n->node, rewrite_memset_node(&set));
	default:
		return write_ops(n);
	}
}

bool graph_node_same(const struct graph_node *a, const struct graph_node *b)
{
	return a->type == b->type && a->size == b->size && !memcmp(a->room, b->room, a->size) &&
	       (a->type != CU_GRAPH_NODE_TYPE_KERNEL ||
		(function_of(&a->kernel) == function_of(&b->kernel) &&
		 !a->kernel.extra == !b->kernel.extra));
}

void graph_node_free(struct graph_node *node)
{
	if (!node)
		return;
	free(node->room);
	free(node);
}
