/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/rewrite.h"
#include "checkpoint/ledger/captures.h"
#include "common/size.h"
#include "vmem/addresses/translate.h"
#include "wrapper/kernels/launch.h"
#include "wrapper/real.h"
#include "wrapper/translated/symbols.h"
#include "wrapper/translated/tensor_maps.h"

#include <string.h>

#define LOG_PREFIX "translated: "
#include "common/log.h"

#define WORD         sizeof(CUdeviceptr)
#define SCANNED_MOST (64UL << 10) /* of a copy to the GPU: arrays of pointers are short */
#define MAP_ALIGN    64           /* of a CUtensorMap */

/* Rewrite the parameter at @value, a copy. */
__attribute__((noinline)) static void rewrite_param(char *value, size_t size)
{
	CUdeviceptr word;

	for (size_t at = 0; at + WORD <= size; at += WORD) {
		memcpy(&word, value + at, WORD);
		word = translate_given(word);
		memcpy(value + at, &word, WORD);
	}
	if (size >= sizeof(CUtensorMap) && __atomic_load_n(&translation.moves, __ATOMIC_RELAXED))
		for (size_t at = 0; at + sizeof(CUtensorMap) <= size; at += MAP_ALIGN)
			tensor_maps_rewrite(value + at);
}

static bool may_point(const struct kp_param *param)
{
	return param->holds == KP_POINTER || param->holds == KP_ANYTHING;
}

size_t rewrite_launch_room(const struct kp_kernel *kernel, void **params, void **extra)
{
	static bool said;
	bool any = false;
	size_t size;

	for (uint32_t i = 0; i < kernel->nparams && !any; i++)
		any = may_point(&kernel->params[i]);
	if (!any && !*kernel->name && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		pr_err("the parameters of a kernel are not known: no pointer in them is "
		       "rewritten, and the kernel may fail");
	if (!any)
		return 0;
	if (params)
		return kernel->nparams * sizeof(*params) + MAP_ALIGN + kernel->size;
	/* The driver refuses larger ones. */
	if (!launch_packed(extra, &size) || size > LAUNCH_PACKED_MAX)
		return 0;
	return 5 * sizeof(*extra) + MAP_ALIGN + size;
}

static char *aligned(void *ptr)
{
	return (char *)(((uintptr_t)ptr + MAP_ALIGN - 1) & -(uintptr_t)MAP_ALIGN);
}

__attribute__((noinline)) static void rewrite_packed(const struct kp_kernel *kernel, void ***extra,
						     void **list)
{
	size_t size;
	char *buffer = launch_packed(*extra, &size);
	char *values = memcpy(aligned(list + 5), buffer, size);

	list[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	list[1] = values;
	list[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	list[3] = (*extra)[0] == CU_LAUNCH_PARAM_BUFFER_SIZE ? (*extra)[1] : (*extra)[3];
	list[4] = CU_LAUNCH_PARAM_END;
	*extra = list;
	for (uint32_t i = 0; i < kernel->nparams; i++)
		if (may_point(&kernel->params[i]))
			rewrite_param(values + kernel->params[i].offset,
				      launch_packed_part(&kernel->params[i], size));
}

/* The common case is here. The rest is out of line, so that it costs no cache line. */
void rewrite_launch(const struct kp_kernel *kernel, void ***params, void ***extra, void *room)
{
	void **from = *params, **list = room;
	char *values = aligned(list + kernel->nparams);
	CUdeviceptr word;

	if (!from) {
		rewrite_packed(kernel, extra, list);
		return;
	}
	*params = list;
	for (uint32_t i = 0; i < kernel->nparams; i++) {
		const struct kp_param *param = &kernel->params[i];

		list[i] = from[i];
		if (!may_point(param))
			continue;
		list[i] = values + param->offset;
		if (param->size == WORD) {
			memcpy(&word, from[i], WORD);
			word = translate_given(word);
			memcpy(list[i], &word, WORD);
		} else {
			memcpy(list[i], from[i], param->size);
			rewrite_param(list[i], param->size);
		}
	}
}

bool rewrite_has_pointer(const void *words, size_t bytes)
{
	CUdeviceptr word;

	for (size_t at = 0; words && at + WORD <= bytes; at += WORD) {
		memcpy(&word, (const char *)words + at, WORD);
		if (translate(word) != word)
			return true;
	}
	return false;
}

/* Not while a capture is open: it would keep the address of the copy. */
bool rewrite_is_variable(CUdeviceptr dst, size_t bytes)
{
	return symbols_have(dst, bytes) && !captures_open(driver_table());
}

/*
 * CUDA's managed memory counts as the device's. Memory that the driver does not know has no type,
 * and is taken for host memory. This call takes 0.1 us for it, and cuPointerGetAttribute() 0.5 us
 * for its error [H200, driver 580.159].
 */
static bool is_host(const void *ptr)
{
	CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	CUmemorytype type = 0;
	void *data = &type;

	return !real.cuPointerGetAttributes(1, &attribute, &data, (CUdeviceptr)ptr) &&
	       (!type || type == CU_MEMORYTYPE_HOST);
}

bool rewrite_words_wanted(const char *call, CUdeviceptr dst, const void *host, size_t bytes)
{
	static bool said;
	size_t most = size_min(bytes, SCANNED_MOST);
	size_t at = -dst & (WORD - 1); /* pointers are aligned on the GPU, for kernels */
	CUdeviceptr word;
	size_t found = 0;

	if (!host || at + WORD > most || !is_host(host))
		return false;
	for (; at + WORD <= most; at += WORD) {
		memcpy(&word, (const char *)host + at, WORD);
		if (translate(word) == word)
			continue;
		if (!found && bytes <= SCANNED_MOST && rewrite_is_variable(dst, bytes))
			return true;
		if (!found++ && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
			pr_err("%s: 0x%llx, at byte %zu of the copy, looks like a pointer to "
			       "GPU memory: CUDAW_ADDRESSING=translated cannot rewrite pointers "
			       "that lie in GPU memory, and a kernel that follows it fails",
			       call, word, at);
	}
	if (found)
		pr_debug("%s: %zu words that look like pointers", call, found);
	return false;
}

const void *rewrite_words(CUdeviceptr dst, void *copy, size_t bytes)
{
	symbols_rewrite(dst, copy, bytes);
	return copy;
}

void rewrite_pointer(CUdeviceptr *ptr)
{
	*ptr = translate(*ptr);
}

static bool is_device(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

/* Replace the pointers of both sides of a copy by @change(pointer). An array has none. */
#define EACH_SIDE(copy, change)                 \
	do {                                    \
		CHANGE_SIDE(copy, src, change); \
		CHANGE_SIDE(copy, dst, change); \
	} while (0)
#define CHANGE_SIDE(copy, side, change)                                                       \
	do {                                                                                  \
		if (is_device((copy)->side##MemoryType))                                      \
			(copy)->side##Device = change((copy)->side##Device);                  \
		else if ((copy)->side##MemoryType == CU_MEMORYTYPE_HOST)                      \
			(copy)->side##Host = (void *)change((CUdeviceptr)(copy)->side##Host); \
	} while (0)

CUDA_MEMCPY2D_v2 *rewrite_copy_2d(CUDA_MEMCPY2D_v2 *copy)
{
	EACH_SIDE(copy, translate);
	return copy;
}

CUDA_MEMCPY3D_v2 *rewrite_copy_3d(CUDA_MEMCPY3D_v2 *copy)
{
	EACH_SIDE(copy, translate);
	return copy;
}

CUDA_MEMCPY3D_PEER *rewrite_copy_3d_peer(CUDA_MEMCPY3D_PEER *copy)
{
	EACH_SIDE(copy, translate);
	return copy;
}

CUdeviceptr *rewrite_resource(CUDA_RESOURCE_DESC *desc)
{
	switch (desc->resType) {
	case CU_RESOURCE_TYPE_LINEAR:
		return &desc->res.linear.devPtr;
	case CU_RESOURCE_TYPE_PITCH2D:
		return &desc->res.pitch2D.devPtr;
	default:
		return NULL;
	}
}

CUlaunchAttributeValue *rewrite_access_policy(CUlaunchAttributeValue *value)
{
	void **base = &value->accessPolicyWindow.base_ptr;

	*base = (void *)translate((CUdeviceptr)*base);
	return value;
}

void rewrite_copy_3d_op(CUDA_MEMCPY3D_BATCH_OP *op)
{
	if (op->src.type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		rewrite_pointer(&op->src.op.ptr.ptr);
	if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		rewrite_pointer(&op->dst.op.ptr.ptr);
}

void rewrite_mem_op(CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		rewrite_pointer(&op->waitValue.address);
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		rewrite_pointer(&op->writeValue.address);
		break;
	default:
		break;
	}
}

void rewrite_decompression(CUmemDecompressParams *op)
{
	op->src = (const void *)translate((CUdeviceptr)op->src);
	op->dst = (void *)translate((CUdeviceptr)op->dst);
	op->dstActBytes = (cuuint32_t *)translate((CUdeviceptr)op->dstActBytes);
}

CUDA_MEMSET_NODE_PARAMS *rewrite_memset_node(CUDA_MEMSET_NODE_PARAMS *node)
{
	rewrite_pointer(&node->dst);
	return node;
}

bool rewrite_pointer_back(CUdeviceptr *ptr)
{
	CUdeviceptr before = *ptr;

	*ptr = translate_back(before);
	return *ptr != before;
}

/* False: the driver knows no memory there. A pool, a module and others may begin anywhere. */
static bool may_be_in_use(CUdeviceptr at)
{
	CUdeviceptr start;

	return real.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) !=
	       CUDA_ERROR_INVALID_VALUE;
}

bool rewrite_param_back(const struct kp_param *param, char *value, size_t size, bool *unclear)
{
	CUdeviceptr word, now;
	bool found = false;

	for (size_t at = 0; at + WORD <= size && may_point(param); at += WORD) {
		if (at % MAP_ALIGN == 0 && at + sizeof(CUtensorMap) <= size &&
		    tensor_maps_rewrite_back(value + at)) {
			at += sizeof(CUtensorMap) - WORD;
			found = true;
			continue;
		}
		memcpy(&word, value + at, WORD);
		now = translate_back_given(word, unclear);
		if (now != word && translate_is_outside(now))
			*unclear |= may_be_in_use(word);
		found |= now != word;
		memcpy(value + at, &now, WORD);
	}
	return found;
}

bool rewrite_copy_3d_back(CUDA_MEMCPY3D_v2 *copy)
{
	const CUDA_MEMCPY3D_v2 before = *copy;

	EACH_SIDE(copy, translate_back);
	return copy->srcDevice != before.srcDevice || copy->dstDevice != before.dstDevice ||
	       copy->srcHost != before.srcHost || copy->dstHost != before.dstHost;
}

bool rewrite_mem_op_back(CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return rewrite_pointer_back(&op->waitValue.address);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return rewrite_pointer_back(&op->writeValue.address);
	default:
		return false;
	}
}

bool rewrite_access_policy_back(CUlaunchAttributeValue *value)
{
	CUdeviceptr base = (CUdeviceptr)value->accessPolicyWindow.base_ptr;
	bool found = rewrite_pointer_back(&base);

	value->accessPolicyWindow.base_ptr = (void *)base;
	return found;
}
