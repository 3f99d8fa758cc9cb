/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of streams. */
#include "tests/sim/sim.h"

#define STREAM_ROOM ((size_t)2 << 20) /* that must be free on the GPU, though it stays so */

static CUresult stream_create(CUstream *stream, unsigned int flags, int priority)
{
	struct sim_ctx *ctx = ctx_current();
	struct sim_stream *s;

	if (!stream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (!account_charge(ctx->dev, STREAM_ROOM))
		return CUDA_ERROR_OUT_OF_MEMORY;
	account_release(ctx->dev, STREAM_ROOM);
	s = stream_new(ctx, flags, priority);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*stream = (CUstream)s;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuStreamCreate(CUstream *stream, unsigned int flags)
{
	SIM_ENTER(cuStreamCreate, NEED_CONTEXT);
	return stream_create(stream, flags, 0);
}

SIM_EXPORT cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	SIM_ENTER(cuStreamCreateWithPriority, NEED_CONTEXT);
	return stream_create(stream, flags, priority);
}

SIM_EXPORT cuStreamDestroy_v2(CUstream handle)
{
	struct sim_stream *s = (struct sim_stream *)handle;

	SIM_ENTER(cuStreamDestroy_v2, NEED_CONTEXT);
	if (!object_known(KIND_STREAM, s))
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	stream_close(s);
	return CUDA_SUCCESS;
}

/* A stream whose state may be asked for: it does not capture, nor do those that it stands for. */
static CUresult stream_get_idle(bool ptds, CUstream handle, struct sim_stream **stream)
{
	CUresult result = stream_get(handle, ptds, stream);

	if (result != CUDA_SUCCESS)
		return result;
	if ((*stream)->capture) {
		(*stream)->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if ((*stream)->legacy && capture_blocks_legacy((*stream)->ctx)) {
		capture_invalidate((*stream)->ctx);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return (*stream)->ctx->error;
}

static CUresult stream_synchronize(bool ptds, CUstream handle)
{
	struct sim_stream *s;
	CUresult result = stream_get_idle(ptds, handle, &s);

	return result == CUDA_SUCCESS ? stream_wait(s) : result;
}

SIM_TWINS(cuStreamSynchronize, _ptsz, stream_synchronize, (CUstream stream), stream)

static CUresult stream_query(bool ptds, CUstream handle)
{
	struct sim_stream *s;
	CUresult result = stream_get_idle(ptds, handle, &s);

	if (result == CUDA_SUCCESS && stream_busy(s))
		result = CUDA_ERROR_NOT_READY;
	return result;
}

SIM_TWINS(cuStreamQuery, _ptsz, stream_query, (CUstream stream), stream)

static CUresult stream_add_callback(bool ptds, CUstream handle, CUstreamCallback fn, void *data,
				    unsigned int flags)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);
	struct sim_op *op;

	if (result != CUDA_SUCCESS)
		return result;
	if (!fn || flags)
		return CUDA_ERROR_INVALID_VALUE;
	op = op_new(OP_CALLBACK);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->callback.fn = fn;
	op->callback.data = data;
	op->callback.stream = handle;
	return stream_submit(s, op);
}

SIM_TWINS(cuStreamAddCallback, _ptsz, stream_add_callback,
	  (CUstream stream, CUstreamCallback fn, void *data, unsigned int flags), stream, fn, data,
	  flags)

static CUresult launch_host_func(bool ptds, CUstream handle, CUhostFn fn, void *data)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);
	struct sim_op *op;

	if (result != CUDA_SUCCESS)
		return result;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	op = op_new(OP_HOST);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->host.fn = fn;
	op->host.data = data;
	return stream_submit(s, op);
}

SIM_TWINS(cuLaunchHostFunc, _ptsz, launch_host_func, (CUstream stream, CUhostFn fn, void *data),
	  stream, fn, data)

static CUresult stream_get_flags(bool ptds, CUstream handle, unsigned int *flags)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS)
		*flags = s->flags;
	return result;
}

SIM_TWINS(cuStreamGetFlags, _ptsz, stream_get_flags, (CUstream stream, unsigned int *flags), stream,
	  flags)

static CUresult stream_get_priority(bool ptds, CUstream handle, int *priority)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS)
		*priority = s->priority;
	return result;
}

SIM_TWINS(cuStreamGetPriority, _ptsz, stream_get_priority, (CUstream stream, int *priority), stream,
	  priority)

static CUresult stream_get_id(bool ptds, CUstream handle, unsigned long long *id)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS)
		*id = s->id;
	return result;
}

SIM_TWINS(cuStreamGetId, _ptsz, stream_get_id, (CUstream stream, unsigned long long *id), stream,
	  id)

static CUresult stream_get_ctx(bool ptds, CUstream handle, CUcontext *ctx)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS)
		*ctx = (CUcontext)s->ctx;
	return result;
}

SIM_TWINS(cuStreamGetCtx, _ptsz, stream_get_ctx, (CUstream stream, CUcontext *ctx), stream, ctx)

/* Of the attributes there is the access policy window alone, which changes nothing. */
static CUresult set_attribute(bool ptds, CUstream handle, CUstreamAttrID attr,
			      const CUstreamAttrValue *value)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS && attr != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		s->window = value->accessPolicyWindow;
	return result;
}

SIM_TWINS(cuStreamSetAttribute, _ptsz, set_attribute,
	  (CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *value), stream, attr,
	  value)

static CUresult get_attribute(bool ptds, CUstream handle, CUstreamAttrID attr,
			      CUstreamAttrValue *value)
{
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS && attr != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		value->accessPolicyWindow = s->window;
	return result;
}

SIM_TWINS(cuStreamGetAttribute, _ptsz, get_attribute,
	  (CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value), stream, attr, value)

static CUresult copy_attributes(bool ptds, CUstream to, CUstream from)
{
	struct sim_stream *dst, *src;
	CUresult result = stream_get(to, ptds, &dst);

	if (result == CUDA_SUCCESS)
		result = stream_get(from, ptds, &src);
	if (result == CUDA_SUCCESS)
		dst->window = src->window;
	return result;
}

SIM_TWINS(cuStreamCopyAttributes, _ptsz, copy_attributes, (CUstream to, CUstream from), to, from)
