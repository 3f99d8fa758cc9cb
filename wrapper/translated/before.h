/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_BEFORE_H
#define CUDAW_WRAPPER_BEFORE_H
/*
 * before: puts real addresses in place of virtual ones in the arguments of a driver call, with
 * translated addressing. These are the functions that driver.words names under "before". Each
 * replaces the arguments that it gets the addresses of, by a rewritten copy in @copies if the
 * argument points to memory of the program. Each returns the error with which the call fails, or
 * CUDA_SUCCESS. An argument that is NULL is left for the driver to refuse.
 */
#include "wrapper/translated/copies.h"

#include <cuda.h>
#include <stddef.h>

/* All addresses are in one space, so the argument for host memory may be GPU memory as well. */
void *before_host(const void *ptr);

/* The @bytes at *@host are copied to @dst: pointers for a module's variable are rewritten. */
CUresult before_host_words(struct copies *copies, const char *call, CUdeviceptr dst,
			   const void **host, size_t bytes);
/* The same for a copy whose source is on either side. */
CUresult before_any(struct copies *copies, const char *call, CUdeviceptr dst, CUdeviceptr *src,
		    size_t bytes);

/* The parameters of a kernel. @extra may be NULL: there is no such argument. */
CUresult before_launch(struct copies *copies, CUfunction function, void ***params, void ***extra);

/* CUDA_ERROR_NOT_SUPPORTED if there is a pointer to rewrite among the @bytes at @words. */
CUresult before_no_pointer(const void *words, size_t bytes);

CUresult before_copy_2d(struct copies *copies, const CUDA_MEMCPY2D **copy);
CUresult before_copy_3d(struct copies *copies, const CUDA_MEMCPY3D **copy);
CUresult before_copy_3d_peer(struct copies *copies, const CUDA_MEMCPY3D_PEER **copy);

CUresult before_pointers(struct copies *copies, CUdeviceptr **ptrs, size_t count);
CUresult before_copy_3d_batch(struct copies *copies, CUDA_MEMCPY3D_BATCH_OP **ops, size_t count);
CUresult before_mem_ops(struct copies *copies, CUstreamBatchMemOpParams **ops, size_t count);
CUresult before_decompressions(struct copies *copies, CUmemDecompressParams **ops, size_t count);

/* The value of an attribute of a stream or a kernel's node: an access policy has an address. */
CUresult before_attribute(struct copies *copies, CUlaunchAttributeID id,
			  const CUlaunchAttributeValue **value);

/* Nodes of graphs. */
CUresult before_kernel_node_v1(struct copies *copies, const CUDA_KERNEL_NODE_PARAMS_v1 **node);
CUresult before_kernel_node(struct copies *copies, const CUDA_KERNEL_NODE_PARAMS_v2 **node);
CUresult before_memset_node(struct copies *copies, const CUDA_MEMSET_NODE_PARAMS **node);
CUresult before_mem_op_node(struct copies *copies, const CUDA_BATCH_MEM_OP_NODE_PARAMS **node);
/* A node of a type without addresses is not copied: the driver may write its results there. */
CUresult before_node(struct copies *copies, CUgraphNodeParams **node);

/* The address and size of a variable, which we need even if the program does not ask for both. */
CUresult before_variable(struct copies *copies, CUdeviceptr **ptr, size_t **bytes);

#endif
