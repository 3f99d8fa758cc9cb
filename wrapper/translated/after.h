/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_AFTER_H
#define CUDAW_WRAPPER_AFTER_H
/*
 * after: what follows a call that succeeded, with translated addressing: real addresses that it
 * handed out become virtual, new graphs and variables of modules are noted (graphs.h, symbols.h),
 * and a change of an instantiated graph is made in our clone as well.
 *
 * The macros are for the table driver.calls, behind "then": each is an expression that gives a
 * CUresult.
 */
#include "checkpoint/ledger/driver_memory.h"
#include "wrapper/translated/symbols.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/translated/rewrite.h"
#include "wrapper/translated/node_readback.h"
#include "wrapper/translated/windows.h"

/* clang-format off */
#define AFTER_COPY_3D(copy)        (rewrite_copy_3d_back(copy), CUDA_SUCCESS)
#define AFTER_MEMSET_NODE(node)    (rewrite_pointer_back(&(node)->dst), CUDA_SUCCESS)
#define AFTER_RESOURCE(desc)                                                           \
	({                                                                             \
		CUdeviceptr *p_ = rewrite_resource(desc);                              \
		if (p_)                                                                \
			rewrite_pointer_back(p_);                                      \
		CUDA_SUCCESS;                                                          \
	})
#define AFTER_POINTER(ptr)         (rewrite_pointer_back(ptr), CUDA_SUCCESS)
/*
 * @at is a real address, or 0. References go with their module, of which only the context is seen.
 */
#define AFTER_TEXTURE_REF(ref, at)                                                     \
	({                                                                             \
		CUcontext ctx_ = NULL;                                                 \
		real.cuCtxGetCurrent(&ctx_);                                           \
		if (translate_back(at) != (at))                                        \
			driver_memory_add_texture((uintptr_t)(ref), ctx_);                 \
		else                                                                   \
			driver_memory_remove(DRIVER_MEMORY_FIXED_TEXTURE, (uintptr_t)(ref));   \
		CUDA_SUCCESS;                                                          \
	})
#define AFTER_ATTRIBUTE(id, value)                                                     \
	((id) == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW                              \
		? (rewrite_access_policy_back(value), CUDA_SUCCESS) : CUDA_SUCCESS)
#define AFTER_LAUNCH_ATTRIBUTES(config)                                                \
	((rewrite_has_window(config)                                                   \
		? rewrite_launch_attributes_back(config) : (void)0), CUDA_SUCCESS)
#define AFTER_WINDOW(stream, id, value)                                                \
	((id) == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW                              \
		? (windows_set(stream, value), CUDA_SUCCESS) : CUDA_SUCCESS)
#define AFTER_WINDOW_COPIED(stream) (windows_copied(stream), CUDA_SUCCESS)
/* @params are of either version. */
#define AFTER_KERNEL_NODE(node, params)                                                \
	({                                                                             \
		const struct graph_node *n_ = node_readback_node(node, CU_GRAPH_NODE_TYPE_KERNEL); \
		if (n_) {                                                              \
			(params)->kernelParams = n_->kernel.kernelParams;              \
			(params)->extra = n_->kernel.extra;                            \
		}                                                                      \
		CUDA_SUCCESS;                                                          \
	})
#define AFTER_MEM_OP_NODE(node, params)                                                \
	({                                                                             \
		const struct graph_node *n_ =                                          \
			node_readback_node(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);             \
		if (n_)                                                                \
			(params)->paramArray = n_->ops.paramArray;                     \
		CUDA_SUCCESS;                                                          \
	})
#define AFTER_GRAPH(graph)         (graphs_add(graph), CUDA_SUCCESS)
#define AFTER_EXEC(exec, graph, flags) (graphs_instantiated(exec, graph, flags), CUDA_SUCCESS)
#define AFTER_EXEC_UPDATE(exec, graph) (graphs_updated(exec, graph), CUDA_SUCCESS)
#define AFTER_FIXED(exec, when, what)                                                  \
	((when) ? (graphs_fix(exec, what, false), CUDA_SUCCESS) : CUDA_SUCCESS)
#define AFTER_VARIABLE(owner, ptr, size)                                               \
	({                                                                             \
		CUcontext ctx_;                                                        \
		if (!real.cuCtxGetCurrent(&ctx_))                                      \
			symbols_add(owner, ctx_, ptr, size);                           \
		CUDA_SUCCESS;                                                          \
	})
/* @params, with real addresses, were set in @exec for @node: @set them in the clone's. */
#define AFTER_EXEC_NODE(exec, node, set, params)                                       \
	({                                                                             \
		CUgraphNode ours_;                                                     \
		if (graphs_our_node(exec, node, &ours_) &&                             \
		    (!real.set || real.set(ours_, params)))                            \
			graphs_fix(exec, "a node that was changed beyond following", true); \
		CUDA_SUCCESS;                                                          \
	})
/* clang-format on */

#endif
