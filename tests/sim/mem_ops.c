/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of streams on memory: values that are written, and that are waited for. */
#include "tests/sim/sim.h"

static CUresult operate(bool ptds, CUstream handle, CUdeviceptr ptr, uint64_t value, size_t width,
			bool wait, unsigned int flags)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);
	struct sim_op *op;

	if (result != CUDA_SUCCESS)
		return result;
	if (ptr % width || !map_reached(s->ctx, ptr, width, false) ||
	    flags > (wait ? CU_STREAM_WAIT_VALUE_NOR : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER))
		return CUDA_ERROR_INVALID_VALUE;
	op = op_new(wait ? OP_POLL : OP_SET);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->ctx = s->ctx;
	if (wait) {
		op->poll.ptr = (const void *)ptr;
		op->poll.value = value;
		op->poll.width = width;
		op->poll.until = flags;
	} else {
		op->set.dst = (void *)ptr;
		op->set.value = value;
		op->set.width = width;
		op->set.count = 1;
	}
	return stream_submit(s, op);
}

#define OPERATION(name, type, width, wait)                                                         \
	SIM_TWINS(name, _ptsz, operate,                                                            \
		  (CUstream stream, CUdeviceptr ptr, type value, unsigned int flags), stream, ptr, \
		  value, width, wait, flags)
OPERATION(cuStreamWriteValue32_v2, cuuint32_t, 4, false)
OPERATION(cuStreamWriteValue64_v2, cuuint64_t, 8, false)
OPERATION(cuStreamWaitValue32_v2, cuuint32_t, 4, true)
OPERATION(cuStreamWaitValue64_v2, cuuint64_t, 8, true)

static CUresult operate_all(bool ptds, CUstream stream, unsigned int count,
			    const CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	CUresult result = ops && count <= 256 && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
		const CUstreamBatchMemOpParams *op = &ops[i];
		bool wide = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
			    op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

		switch (op->operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			result = operate(ptds, stream, op->waitValue.address, op->waitValue.value64,
					 wide ? 8 : 4, true, op->waitValue.flags);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			result = operate(ptds, stream, op->writeValue.address,
					 op->writeValue.value64, wide ? 8 : 4, false,
					 op->writeValue.flags);
			break;
		default:
			result = CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return result;
}

SIM_TWINS(cuStreamBatchMemOp_v2, _ptsz, operate_all,
	  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags),
	  stream, count, ops, flags)
