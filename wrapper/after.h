/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_AFTER_H
#define CUDAW_WRAPPER_AFTER_H
/*
 * after: what follows a call that succeeded, with translated addressing: real addresses that it
 * handed out become virtual, and a change of an instantiated graph is made in our clone as well
 * (graphs.h).
 *
 * The macros are for the table driver.calls, behind "then": each is an expression that gives a
 * CUresult.
 */
#include "wrapper/graphs.h"
#include "wrapper/rewrite.h"
#include "wrapper/windows.h"

/* clang-format off */
#define AFTER_COPY_3D(copy)        (rewrite_copy_3d_back(copy), CUDA_SUCCESS)
#define AFTER_MEMSET_NODE(node)    (rewrite_pointer_back(&(node)->dst), CUDA_SUCCESS)
#define AFTER_ATTRIBUTE(id, value)                                                     \
	((id) == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW                              \
		? (rewrite_access_policy_back(value), CUDA_SUCCESS) : CUDA_SUCCESS)
#define AFTER_WINDOW(stream, id, value)                                                \
	((id) == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW                              \
		? (windows_set(stream, value), CUDA_SUCCESS) : CUDA_SUCCESS)
/* @params, with real addresses, were set in @exec for @node: @set them in the clone's. */
#define AFTER_EXEC_NODE(exec, node, set, params)                                       \
	({                                                                             \
		CUgraphNode ours_;                                                     \
		if (graphs_our_node(exec, node, &ours_) &&                             \
		    (!real.set || real.set(ours_, params)))                            \
			graphs_fix(exec, "a node that was changed beyond following");  \
		CUDA_SUCCESS;                                                          \
	})
/* clang-format on */

#endif
