/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/after.h"
#include "checkpoint/ledger/driver_memory.h"
#include "vmem/addresses/translate.h"
#include "wrapper/real.h"
#include "wrapper/translated/graph_node.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/translated/node_readback.h"
#include "wrapper/translated/rewrite.h"
#include "wrapper/translated/symbols.h"
#include "wrapper/translated/windows.h"

#include <stdint.h>

void after_resource(CUDA_RESOURCE_DESC *desc)
{
	CUdeviceptr *ptr = rewrite_resource(desc);

	if (ptr)
		rewrite_pointer_back(ptr);
}

void after_attribute(CUlaunchAttributeID id, CUlaunchAttributeValue *value)
{
	if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		rewrite_access_policy_back(value);
}

void after_window(CUstream stream, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		windows_set(stream, value);
}

void after_texture_ref(CUtexref ref, CUdeviceptr at)
{
	CUcontext ctx = NULL;

	real.cuCtxGetCurrent(&ctx);
	if (translate_back(at) != at)
		driver_memory_add_texture((uintptr_t)ref, ctx);
	else
		driver_memory_remove(DRIVER_MEMORY_FIXED_TEXTURE, (uintptr_t)ref);
}

void after_kernel_node(CUgraphNode node, void ***params, void ***extra)
{
	const struct graph_node *n = node_readback_node(node, CU_GRAPH_NODE_TYPE_KERNEL);

	if (!n)
		return;
	*params = n->kernel.kernelParams;
	*extra = n->kernel.extra;
}

void after_mem_op_node(CUgraphNode node, CUstreamBatchMemOpParams **ops)
{
	const struct graph_node *n = node_readback_node(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);

	if (n)
		*ops = n->ops.paramArray;
}

void after_exec_node(CUgraphExec exec, CUgraphNode ours, CUresult result)
{
	if (ours && result)
		graphs_fix(exec, "a node that was changed beyond following", true);
}

void after_fixed(CUgraphExec exec, bool now, const char *reason)
{
	if (now)
		graphs_fix(exec, reason, false);
}

void after_variable(const void *owner, CUdeviceptr ptr, size_t size)
{
	CUcontext ctx;

	if (!real.cuCtxGetCurrent(&ctx))
		symbols_add(owner, ctx, ptr, size);
}
