/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/before.h"
#include "vmem/addresses/translate.h"
#include "wrapper/kernels/images.h"
#include "wrapper/translated/rewrite.h"

void *before_host(const void *ptr)
{
	return (void *)translate((CUdeviceptr)ptr);
}

CUresult before_host_words(struct copies *copies, const char *call, CUdeviceptr dst,
			   const void **host, size_t bytes)
{
	const void *from = *host;
	void *copy;

	*host = before_host(from);
	if (*host != from || !rewrite_words_wanted(call, dst, from, bytes))
		return CUDA_SUCCESS;
	copy = copies_take(copies, from, bytes);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*host = rewrite_words(dst, copy, bytes);
	return CUDA_SUCCESS;
}

CUresult before_any(struct copies *copies, const char *call, CUdeviceptr dst, CUdeviceptr *src,
		    size_t bytes)
{
	const void *from = (const void *)translate(*src);
	CUresult result = CUDA_SUCCESS;

	if (rewrite_is_variable(dst, bytes))
		result = before_host_words(copies, call, dst, &from, bytes);
	*src = (CUdeviceptr)from;
	return result;
}

CUresult before_launch(struct copies *copies, CUfunction function, void ***params, void ***extra)
{
	const struct kp_kernel *kernel = images_layout(function);
	size_t bytes = rewrite_launch_room(kernel, *params, extra ? *extra : NULL);
	void *room;

	if (!bytes)
		return CUDA_SUCCESS;
	room = copies_room(copies, bytes);
	if (!room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rewrite_launch(kernel, params, extra, room);
	return CUDA_SUCCESS;
}

CUresult before_no_pointer(const void *words, size_t bytes)
{
	return rewrite_has_pointer(words, bytes) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* The result of a call whose argument is to become @copy of @from, which may be NULL. */
static CUresult taken(const void *copy, const void *from)
{
	return from && !copy ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult before_copy_2d(struct copies *copies, const CUDA_MEMCPY2D **copy)
{
	CUDA_MEMCPY2D *own = copies_take(copies, *copy, sizeof(*own));
	CUresult result = taken(own, *copy);

	if (own)
		*copy = rewrite_copy_2d(own);
	return result;
}

CUresult before_copy_3d(struct copies *copies, const CUDA_MEMCPY3D **copy)
{
	CUDA_MEMCPY3D *own = copies_take(copies, *copy, sizeof(*own));
	CUresult result = taken(own, *copy);

	if (own)
		*copy = rewrite_copy_3d(own);
	return result;
}

CUresult before_copy_3d_peer(struct copies *copies, const CUDA_MEMCPY3D_PEER **copy)
{
	CUDA_MEMCPY3D_PEER *own = copies_take(copies, *copy, sizeof(*own));
	CUresult result = taken(own, *copy);

	if (own)
		*copy = rewrite_copy_3d_peer(own);
	return result;
}

CUresult before_pointers(struct copies *copies, CUdeviceptr **ptrs, size_t count)
{
	CUresult result;
	CUdeviceptr *own = copies_take_array(copies, *ptrs, count, sizeof(*own), &result);

	for (size_t i = 0; own && i < count; i++)
		rewrite_pointer(&own[i]);
	*ptrs = own ? own : *ptrs;
	return result;
}

CUresult before_copy_3d_batch(struct copies *copies, CUDA_MEMCPY3D_BATCH_OP **ops, size_t count)
{
	CUresult result;
	CUDA_MEMCPY3D_BATCH_OP *own = copies_take_array(copies, *ops, count, sizeof(*own), &result);

	for (size_t i = 0; own && i < count; i++)
		rewrite_copy_3d_op(&own[i]);
	*ops = own ? own : *ops;
	return result;
}

CUresult before_mem_ops(struct copies *copies, CUstreamBatchMemOpParams **ops, size_t count)
{
	CUresult result;
	CUstreamBatchMemOpParams *own =
		copies_take_array(copies, *ops, count, sizeof(*own), &result);

	for (size_t i = 0; own && i < count; i++)
		rewrite_mem_op(&own[i]);
	*ops = own ? own : *ops;
	return result;
}

CUresult before_decompressions(struct copies *copies, CUmemDecompressParams **ops, size_t count)
{
	CUresult result;
	CUmemDecompressParams *own = copies_take_array(copies, *ops, count, sizeof(*own), &result);

	for (size_t i = 0; own && i < count; i++)
		rewrite_decompression(&own[i]);
	*ops = own ? own : *ops;
	return result;
}

CUresult before_attribute(struct copies *copies, CUlaunchAttributeID id,
			  const CUlaunchAttributeValue **value)
{
	CUlaunchAttributeValue *own;
	CUresult result;

	if (id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		return CUDA_SUCCESS;
	own = copies_take(copies, *value, sizeof(*own));
	result = taken(own, *value);
	if (own)
		*value = rewrite_access_policy(own);
	return result;
}

CUresult before_kernel_node_v1(struct copies *copies, const CUDA_KERNEL_NODE_PARAMS_v1 **node)
{
	CUDA_KERNEL_NODE_PARAMS_v1 *own = copies_take(copies, *node, sizeof(*own));

	if (!own)
		return taken(own, *node);
	*node = own;
	return before_launch(copies, own->func, &own->kernelParams, &own->extra);
}

CUresult before_kernel_node(struct copies *copies, const CUDA_KERNEL_NODE_PARAMS_v2 **node)
{
	CUDA_KERNEL_NODE_PARAMS_v2 *own = copies_take(copies, *node, sizeof(*own));

	if (!own)
		return taken(own, *node);
	*node = own;
	return before_launch(copies, own->func ? own->func : (CUfunction)own->kern,
			     &own->kernelParams, &own->extra);
}

CUresult before_memset_node(struct copies *copies, const CUDA_MEMSET_NODE_PARAMS **node)
{
	CUDA_MEMSET_NODE_PARAMS *own = copies_take(copies, *node, sizeof(*own));
	CUresult result = taken(own, *node);

	if (own)
		*node = rewrite_memset_node(own);
	return result;
}

CUresult before_mem_op_node(struct copies *copies, const CUDA_BATCH_MEM_OP_NODE_PARAMS **node)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS *own = copies_take(copies, *node, sizeof(*own));

	if (!own)
		return taken(own, *node);
	*node = own;
	return before_mem_ops(copies, &own->paramArray, own->count);
}

static bool has_addresses(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

CUresult before_node(struct copies *copies, CUgraphNodeParams **node)
{
	CUgraphNodeParams *own;

	if (!*node || !has_addresses((*node)->type))
		return CUDA_SUCCESS;
	own = copies_take(copies, *node, sizeof(*own));
	if (!own)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*node = own;
	switch (own->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return before_launch(
			copies, own->kernel.func ? own->kernel.func : (CUfunction)own->kernel.kern,
			&own->kernel.kernelParams, &own->kernel.extra);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return before_mem_ops(copies, &own->memOp.paramArray, own->memOp.count);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		rewrite_copy_3d(&own->memcpy.copyParams);
		return CUDA_SUCCESS;
	default:
		rewrite_pointer(&own->memset.dst);
		return CUDA_SUCCESS;
	}
}

CUresult before_variable(struct copies *copies, CUdeviceptr **ptr, size_t **bytes)
{
	if (!*ptr)
		*ptr = copies_room(copies, sizeof(**ptr));
	if (!*bytes)
		*bytes = copies_room(copies, sizeof(**bytes));
	return *ptr && *bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
