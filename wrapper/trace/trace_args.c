/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/trace/trace_calls.h"
#include "wrapper/real.h"
#include "checkpoint/gate/gate.h"
#include "vmem/vmem.h"

void traced_put_pointer(struct trace_event *event, unsigned long long ptr)
{
	struct vmem_info info;

	trace_put(event, "\"");
	trace_put_hex(event, ptr);
	if (vmem_lookup(ptr, &info)) {
		trace_put(event, " (#");
		trace_put_number(event, info.id);
		trace_put(event, "+");
		trace_put_number(event, ptr - info.start);
		trace_put(event, ")");
	}
	trace_put(event, "\"");
}

void traced_pointer(struct trace_event *event, const char *key, unsigned long long ptr)
{
	trace_arg_begin(event, key);
	traced_put_pointer(event, ptr);
	trace_arg_end(event);
}

void traced_handle(struct trace_event *event, const char *key, const void *handle)
{
	traced_pointer(event, key, (uintptr_t)handle);
}

void traced_dim(struct trace_event *event, const char *key, struct traced_dim dim)
{
	trace_arg_begin(event, key);
	trace_put(event, "[");
	trace_put_number(event, dim.x);
	trace_put(event, ",");
	trace_put_number(event, dim.y);
	trace_put(event, ",");
	trace_put_number(event, dim.z);
	trace_put(event, "]");
	trace_arg_end(event);
}

/*
 * Only the driver knows CUDA's managed memory, pools and pinned memory. Memory that it does not
 * know is host memory.
 */
static unsigned int type_of(unsigned long long ptr)
{
	unsigned int type = CU_MEMORYTYPE_HOST;

	if (vmem_contains(ptr))
		return CU_MEMORYTYPE_DEVICE;
	if (!gate_enter(GATE_HOLD))
		return type;
	if (real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr))
		type = CU_MEMORYTYPE_HOST;
	gate_exit();
	return type;
}

const char *traced_copy_kind(unsigned int from_type, unsigned long long from, unsigned int to_type,
			     unsigned long long to)
{
	static const char *const kinds[3][3] = {
		{"HtoH", "HtoD", "HtoA"},
		{"DtoH", "DtoD", "DtoA"},
		{"AtoH", "AtoD", "AtoA"},
	};

	if (from_type < CU_MEMORYTYPE_HOST || from_type > CU_MEMORYTYPE_ARRAY)
		from_type = type_of(from);
	if (to_type < CU_MEMORYTYPE_HOST || to_type > CU_MEMORYTYPE_ARRAY)
		to_type = type_of(to);
	return kinds[from_type - CU_MEMORYTYPE_HOST][to_type - CU_MEMORYTYPE_HOST];
}

size_t traced_sum(const size_t *sizes, size_t count)
{
	size_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += sizes[i];
	return sum;
}

size_t traced_sum_boxes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	size_t sum = 0;

	for (size_t i = 0; i < count; i++)
		if (ops[i].src.type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
		    ops[i].dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER)
			sum += ops[i].extent.width * ops[i].extent.height * ops[i].extent.depth;
	return sum;
}
