/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_AFTER_H
#define CUDAW_WRAPPER_AFTER_H
/*
 * after: the work that follows a driver call that succeeded, with translated addressing. Real
 * addresses that the call handed out become virtual, variables of modules are noted (symbols.h),
 * and a change of an instantiated graph is made in our clone as well (graphs.h). These functions
 * are among those that driver.words names under "after".
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

void after_resource(CUDA_RESOURCE_DESC *desc);

/* The value of an attribute of a stream or a kernel's node: an access policy has an address. */
void after_attribute(CUlaunchAttributeID id, CUlaunchAttributeValue *value);

/* The attribute was set on @stream, with a real address. */
void after_window(CUstream stream, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

/*
 * The texture reference @ref was set to the real address @at, or 0. References go with their
 * module, of which only the context is seen.
 */
void after_texture_ref(CUtexref ref, CUdeviceptr at);

/* The program has read @node, in either version of the struct. */
void after_kernel_node(CUgraphNode node, void ***params, void ***extra);
void after_mem_op_node(CUgraphNode node, CUstreamBatchMemOpParams **ops);

/*
 * A node of @exec was changed. @ours is the node of our clone that belongs to it, or NULL, and
 * @result is of the same change there.
 */
void after_exec_node(CUgraphExec exec, CUgraphNode ours, CUresult result);

/* If @now is true, a pause cannot move @exec from now on, as it has @reason. */
void after_fixed(CUgraphExec exec, bool now, const char *reason);

/* The module or library @owner has a variable of @size bytes at @ptr. */
void after_variable(const void *owner, CUdeviceptr ptr, size_t size);

#endif
