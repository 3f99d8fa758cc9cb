/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_REWRITE_H
#define CUDAW_WRAPPER_REWRITE_H
/*
 * rewrite: puts real addresses in place of virtual ones, in what the program hands to the driver
 * (translated addressing). What the program owns is never changed: it is copied to the caller's
 * stack, or the heap where it is large, and the copy is rewritten.
 *
 * A word is rewritten where it lies in memory that vmem has mapped, or 2 MiB around it, and
 *  - is a pointer by the function's prototype, or by what is known of the kernel's parameter;
 *  - or is an aligned word of a parameter that is a struct, or of which nobody knows what it holds.
 * A pointer in GPU memory is out of reach, but for variables of modules (symbols.h). Where a copy
 * to the GPU carries words that look like pointers to its memory, that is said once.
 *
 * Tensor maps in a kernel's parameters, which have an address inside, are those of tensor_maps.h.
 *
 * The macros are for the table driver.calls: each is an expression that gives a CUresult and
 * changes the parameters that it names.
 */
#include "vmem/translate.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/kernels/images.h"
#include "wrapper/translated/node_readback.h"

#include <alloca.h>
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

/* How many a batch may have. Copies of more than so many bytes are on the heap, not the stack. */
#define REWRITE_BATCH_MAX 4096
#define REWRITE_STACK_MAX 16384

/* clang-format off */
/* Where a function uses what follows: the copies that it has on the heap, until it returns. */
#define REWRITE_HEAP() void *heap_[2] __attribute__((cleanup(rewrite_heap_free))) = {0}
/* For a copy of @bytes; NULL where there is no memory. */
#define REWRITE_ROOM(bytes)                                                            \
	((bytes) > REWRITE_STACK_MAX ? rewrite_heap_add(heap_, bytes) : alloca(bytes))
#define REWRITE_NOTHING()               CUDA_SUCCESS
#define REWRITE_RANGE(ptr, bytes)       ({ ptr = translate(ptr); CUDA_SUCCESS; })
#define REWRITE_ROWS(ptr, pitch, width, height) REWRITE_RANGE(ptr, width)
#define REWRITE_BOTH(first, second)     ({ CUresult r_ = first; r_ ? r_ : second; })
/* What is to be host memory may be the GPU's as well, as all addresses are in one space. */
#define REWRITE_HOST(ptr, bytes) ({ ptr = (void *)translate((CUdeviceptr)(ptr)); CUDA_SUCCESS; })
#define REWRITE_WORDS(dst, host, bytes)                                                \
	({                                                                             \
		const void *h_ = (const void *)translate((CUdeviceptr)(host));         \
		bool some_ = h_ == (host) && rewrite_words_room(call_, dst, host, bytes); \
		void *copy_ = some_ ? REWRITE_ROOM(bytes) : NULL;                      \
		if (copy_)                                                             \
			h_ = rewrite_words(dst, memcpy(copy_, host, bytes), bytes);    \
		host = h_;                                                             \
		some_ && !copy_ ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;             \
	})
/* @src is on either side. */
#define REWRITE_ANY(dst, src, bytes)                                                   \
	({                                                                             \
		const void *from_ = (const void *)translate(src);                      \
		CUresult words_ = CUDA_SUCCESS;                                        \
		if (rewrite_is_variable(dst, bytes))                                   \
			words_ = REWRITE_WORDS(dst, from_, bytes);                     \
		src = (CUdeviceptr)from_;                                              \
		words_;                                                                \
	})
#define REWRITE_LAUNCH(f, params, extra)                                               \
	({                                                                             \
		const struct kp_kernel *k_ = images_layout(f);                         \
		size_t bytes_ = rewrite_launch_room(k_, params, extra);                \
		void *room_ = bytes_ ? REWRITE_ROOM(bytes_) : NULL;                    \
		if (room_)                                                             \
			rewrite_launch(k_, &params, &extra, room_);                    \
		bytes_ && !room_ ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;            \
	})
#define REWRITE_LAUNCH_PARAMS(f, params) ({ void **no_ = NULL; REWRITE_LAUNCH(f, params, no_); })
#define REWRITE_LAUNCH_EACH(list, count) CUDA_ERROR_NOT_SUPPORTED
#define REWRITE_NO_POINTER(words, bytes)                                               \
	(rewrite_has_pointer(words, bytes) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS)
/* @rewrite(&copy) of the struct at @ptr. */
#define REWRITE_COPIED(ptr, rewrite)                                                   \
	({                                                                             \
		if (ptr)                                                               \
			ptr = rewrite(memcpy(alloca(sizeof(*ptr)), ptr, sizeof(*ptr))); \
		CUDA_SUCCESS;                                                          \
	})
#define REWRITE_COPY_2D(copy)           REWRITE_COPIED(copy, rewrite_copy_2d)
#define REWRITE_COPY_3D(copy)           REWRITE_COPIED(copy, rewrite_copy_3d)
#define REWRITE_COPY_3D_PEER(copy)      REWRITE_COPIED(copy, rewrite_copy_3d_peer)
/* The @count elements of an array, by @rewrite(element). */
#define REWRITE_EACH(array, count, rewrite)                                            \
	({                                                                             \
		size_t n_ = (array) ? (count) : 0, bytes_ = n_ * sizeof(*array);       \
		void *copy_ = n_ > REWRITE_BATCH_MAX ? NULL : REWRITE_ROOM(bytes_);    \
		if (n_ && copy_)                                                       \
			array = memcpy(copy_, array, bytes_);                          \
		for (size_t i_ = 0; copy_ && i_ < n_; i_++)                            \
			rewrite(&array[i_]);                                           \
		copy_ ? CUDA_SUCCESS                                                   \
		: n_ <= REWRITE_BATCH_MAX ? CUDA_ERROR_OUT_OF_MEMORY                   \
					  : CUDA_ERROR_NOT_SUPPORTED;                  \
	})
#define REWRITE_POINTERS(ptrs, count)   REWRITE_EACH(ptrs, count, rewrite_pointer)
#define REWRITE_COPY_BATCH(dsts, srcs, sizes, count)                                   \
	REWRITE_BOTH(REWRITE_POINTERS(dsts, count), REWRITE_POINTERS(srcs, count))
#define REWRITE_COPY_3D_BATCH(ops, count) REWRITE_EACH(ops, count, rewrite_copy_3d_op)
#define REWRITE_MEM_OPS(ops, count)     REWRITE_EACH(ops, count, rewrite_mem_op)
#define REWRITE_DECOMPRESSIONS(ops, count) REWRITE_EACH(ops, count, rewrite_decompression)
/* Nodes of graphs; see graphs.h for what is read back from them. */
#define REWRITE_KERNEL_NODE_OF(type, node, f)                                          \
	({                                                                             \
		type *kn_ = NULL;                                                      \
		if (node)                                                              \
			node = kn_ = memcpy(alloca(sizeof(type)), node, sizeof(type)); \
		kn_ ? REWRITE_LAUNCH(f, kn_->kernelParams, kn_->extra) : CUDA_SUCCESS; \
	})
#define REWRITE_KERNEL_NODE_V1(node)                                                   \
	REWRITE_KERNEL_NODE_OF(CUDA_KERNEL_NODE_PARAMS_v1, node, kn_->func)
#define REWRITE_KERNEL_NODE(node)                                                      \
	REWRITE_KERNEL_NODE_OF(CUDA_KERNEL_NODE_PARAMS_v2, node,                       \
			       kn_->func ? kn_->func : (CUfunction)kn_->kern)
#define REWRITE_MEMSET_NODE(node)       REWRITE_COPIED(node, rewrite_memset_node)
#define REWRITE_MEM_OP_NODE(node)                                                      \
	({                                                                             \
		CUDA_BATCH_MEM_OP_NODE_PARAMS *o_ = NULL;                              \
		if (node)                                                              \
			node = o_ = memcpy(alloca(sizeof(*o_)), node, sizeof(*o_));    \
		o_ ? REWRITE_MEM_OPS(o_->paramArray, o_->count) : CUDA_SUCCESS;        \
	})
/* Of others the driver fills something in. */
#define REWRITE_NODE(node)                                                             \
	({                                                                             \
		CUgraphNodeParams *g_ = NULL;                                          \
		if ((node) && rewrite_has_addresses((node)->type))                     \
			node = g_ = memcpy(alloca(sizeof(*g_)), node, sizeof(*g_));    \
		if (g_)                                                                \
			rewrite_node(g_);                                              \
		!g_ ? CUDA_SUCCESS                                                     \
		: g_->type == CU_GRAPH_NODE_TYPE_KERNEL                                \
			? REWRITE_LAUNCH(g_->kernel.func ? g_->kernel.func             \
							 : (CUfunction)g_->kernel.kern, \
					 g_->kernel.kernelParams, g_->kernel.extra)    \
		: g_->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP                          \
			? REWRITE_MEM_OPS(g_->memOp.paramArray, g_->memOp.count)       \
			: CUDA_SUCCESS;                                                \
	})
#define REWRITE_ATTRIBUTE(id, value)                                                   \
	((id) == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW                              \
		? REWRITE_COPIED(value, rewrite_access_policy) : CUDA_SUCCESS)
/* Graphs: none may be used that still has the addresses before a move. */
#define REWRITE_GRAPH(graph)            graphs_usable(graph)
#define REWRITE_NO_GRAPH(graph)                                                        \
	(node_readback_forget_graph(graph), graphs_remove(graph), CUDA_SUCCESS)
#define REWRITE_NO_EXEC(exec)           (graphs_exec_remove(exec), CUDA_SUCCESS)
/* What the program does not ask for we do. */
#define REWRITE_WANTED(ptr)                                                            \
	({                                                                             \
		if (!(ptr))                                                            \
			ptr = alloca(sizeof(*(ptr)));                                  \
		CUDA_SUCCESS;                                                          \
	})
/* The attributes of a launch; the copy is made where one of them has an address. */
#define REWRITE_LAUNCH_ATTRIBUTES(config)                                              \
	({                                                                             \
		struct rewrite_config *c_ = NULL;                                      \
		if (rewrite_has_window(config)) {                                      \
			c_ = alloca(sizeof(*c_));                                      \
			*c_ = (struct rewrite_config){*(config), (config)->attrs};     \
			config = &c_->copy;                                            \
		}                                                                      \
		c_ ? REWRITE_EACH(c_->copy.attrs, c_->copy.numAttrs,                   \
				  rewrite_launch_attribute)                            \
		   : CUDA_SUCCESS;                                                     \
	})
/* clang-format on */

/*
 * How many bytes rewrite_launch() needs at @room for its copies. 0 where there is nothing to
 * rewrite, as in a kernel of which nothing is known, which is said once.
 */
size_t rewrite_launch_room(const struct kp_kernel *kernel, void **params, void **extra);
void rewrite_launch(const struct kp_kernel *kernel, void ***params, void ***extra, void *room);

/* True where a word at @words, which may be NULL, would be rewritten. */
bool rewrite_has_pointer(const void *words, size_t bytes);

/*
 * Look for pointers among the @bytes at @host, which are copied to @dst. True where
 * rewrite_words() can rewrite them, in a copy; else that there are any is said once. What is not
 * host memory is not touched: the driver takes any address.
 */
bool rewrite_words_room(const char *call, CUdeviceptr dst, const void *host, size_t bytes);
const void *rewrite_words(CUdeviceptr dst, void *copy, size_t bytes);

/* True where @dst is of a variable of a module, into which words can be rewritten now. */
bool rewrite_is_variable(CUdeviceptr dst, size_t bytes);

static inline bool rewrite_has_addresses(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

/* All of a node but its kernel and its operations on memory. */
void rewrite_node(CUgraphNodeParams *node);
CUDA_MEMSET_NODE_PARAMS *rewrite_memset_node(CUDA_MEMSET_NODE_PARAMS *node);

static inline void *rewrite_heap_add(void **heap, size_t bytes)
{
	return heap[heap[0] ? 1 : 0] = malloc(bytes);
}

static inline void rewrite_heap_free(void *(*heap)[2])
{
	if (!(*heap)[0])
		return;
	free((*heap)[0]);
	free((*heap)[1]);
}

static inline void rewrite_pointer(CUdeviceptr *ptr)
{
	*ptr = translate(*ptr);
}

/* The address in @desc; NULL where it has none. */
CUdeviceptr *rewrite_resource(CUDA_RESOURCE_DESC *desc);

/* These change what is at @copy, and return it. */
CUDA_MEMCPY2D_v2 *rewrite_copy_2d(CUDA_MEMCPY2D_v2 *copy);
CUDA_MEMCPY3D_v2 *rewrite_copy_3d(CUDA_MEMCPY3D_v2 *copy);
CUDA_MEMCPY3D_PEER *rewrite_copy_3d_peer(CUDA_MEMCPY3D_PEER *copy);
CUlaunchAttributeValue *rewrite_access_policy(CUlaunchAttributeValue *value);
void rewrite_copy_3d_op(CUDA_MEMCPY3D_BATCH_OP *op);
void rewrite_mem_op(CUstreamBatchMemOpParams *op);
void rewrite_decompression(CUmemDecompressParams *op);

/* What REWRITE_LAUNCH_ATTRIBUTES() makes of one that has a window. */
struct rewrite_config {
	CUlaunchConfig copy;
	CUlaunchAttribute *own; /* the program's */
};

static inline bool rewrite_has_window(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; config && config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
			return true;
	return false;
}

void rewrite_launch_attribute(CUlaunchAttribute *attribute);

/* Give the program what the driver has filled in, after a launch with a copy of its attributes. */
void rewrite_launch_attributes_back(const CUlaunchConfig *config);

/*
 * The reverse, for what the driver hands out: each returns true where it found a real address of
 * ours, and put the virtual one there. At @value are @size bytes of the parameter @param, a copy;
 * *@unclear becomes true where it has one of which that is not certain (translate_back_given()).
 */
bool rewrite_pointer_back(CUdeviceptr *ptr);
bool rewrite_param_back(const struct kp_param *param, char *value, size_t size, bool *unclear);
bool rewrite_copy_3d_back(CUDA_MEMCPY3D_v2 *copy);
bool rewrite_mem_op_back(CUstreamBatchMemOpParams *op);
bool rewrite_access_policy_back(CUlaunchAttributeValue *value);

#endif
