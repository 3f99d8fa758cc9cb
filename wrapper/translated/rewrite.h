/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_REWRITE_H
#define CUDAW_WRAPPER_REWRITE_H
/*
 * rewrite: real addresses in place of virtual ones, and back, in words, structs and the parameters
 * of kernels (translated addressing). These functions change the object that they are given: for an
 * object of the program that is a copy (before.h).
 *
 * A word is rewritten if it lies in memory that vmem has mapped, or 2 MiB around it, and
 *  - is a pointer by the function's prototype, or by the type of the kernel's parameter;
 *  - or is an aligned word of a parameter that is a struct, or whose contents are not known.
 * A pointer in GPU memory is out of reach, except in variables of modules (symbols.h). If a copy to
 * the GPU carries words that look like pointers to its memory, one message says so.
 *
 * Tensor maps in a kernel's parameters, which have an address inside, are those of tensor_maps.h.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct kp_kernel;
struct kp_param;

/*
 * How many bytes rewrite_launch() needs at @room for its copies. 0: there is nothing to rewrite, as
 * in a kernel of which nothing is known, about which there is one message.
 */
size_t rewrite_launch_room(const struct kp_kernel *kernel, void **params, void **extra);
void rewrite_launch(const struct kp_kernel *kernel, void ***params, void ***extra, void *room);

/* True if a word at @words, which may be NULL, would be rewritten. */
bool rewrite_has_pointer(const void *words, size_t bytes);

/*
 * Look for pointers among the @bytes at @host, which are copied to @dst. True: rewrite_words() can
 * rewrite them, in a copy. If it cannot, one message says that there are some. Memory that is not
 * host memory is not touched: the driver takes any address.
 */
bool rewrite_words_wanted(const char *call, CUdeviceptr dst, const void *host, size_t bytes);
const void *rewrite_words(CUdeviceptr dst, void *copy, size_t bytes);

/* True if @dst is of a variable of a module, into which words can be rewritten now. */
bool rewrite_is_variable(CUdeviceptr dst, size_t bytes);

void rewrite_pointer(CUdeviceptr *ptr);

/* The address in @desc; NULL: it has none. */
CUdeviceptr *rewrite_resource(CUDA_RESOURCE_DESC *desc);

/* These return their argument. */
CUDA_MEMCPY2D_v2 *rewrite_copy_2d(CUDA_MEMCPY2D_v2 *copy);
CUDA_MEMCPY3D_v2 *rewrite_copy_3d(CUDA_MEMCPY3D_v2 *copy);
CUDA_MEMCPY3D_PEER *rewrite_copy_3d_peer(CUDA_MEMCPY3D_PEER *copy);
CUDA_MEMSET_NODE_PARAMS *rewrite_memset_node(CUDA_MEMSET_NODE_PARAMS *node);
CUlaunchAttributeValue *rewrite_access_policy(CUlaunchAttributeValue *value);

void rewrite_copy_3d_op(CUDA_MEMCPY3D_BATCH_OP *op);
void rewrite_mem_op(CUstreamBatchMemOpParams *op);
void rewrite_decompression(CUmemDecompressParams *op);

/*
 * The reverse, for the driver's answers: each returns true if it found a real address of ours,
 * and put the virtual one there. At @value are @size bytes of the parameter @param, a copy;
 * *@unclear becomes true if one of them is not certain to be ours (translate_back_given()).
 */
bool rewrite_pointer_back(CUdeviceptr *ptr);
bool rewrite_param_back(const struct kp_param *param, char *value, size_t size, bool *unclear);
bool rewrite_copy_3d_back(CUDA_MEMCPY3D_v2 *copy);
bool rewrite_mem_op_back(CUstreamBatchMemOpParams *op);
bool rewrite_access_policy_back(CUlaunchAttributeValue *value);

#endif
