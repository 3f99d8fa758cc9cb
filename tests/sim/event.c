/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. Each record makes a mark, which the worker completes; waits refer to the mark that was
 * the event's at that moment, so that recording an event anew does not move an earlier wait.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

struct sim_mark *mark_get(struct sim_mark *mark)
{
	mark->refs++;
	return mark;
}

void mark_put(struct sim_mark *mark)
{
	if (mark && --mark->refs == 0)
		free(mark);
}

static struct sim_event *event_find(CUevent handle)
{
	return object_known(KIND_EVENT, handle) ? (struct sim_event *)handle : NULL;
}

SIM_EXPORT cuEventCreate(CUevent *event, unsigned int flags)
{
	struct sim_event *e;

	SIM_ENTER(cuEventCreate, NEED_CONTEXT);
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->flags = flags;
	object_add(KIND_EVENT, &e->obj);
	*event = (CUevent)e;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuEventDestroy_v2(CUevent handle)
{
	struct sim_event *e;

	SIM_ENTER(cuEventDestroy_v2, NEED_CONTEXT);
	e = event_find(handle);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	object_remove(&e->obj);
	mark_put(e->mark);
	free(e);
	return CUDA_SUCCESS;
}

static CUresult event_record(bool ptds, CUevent handle, CUstream stream)
{
	struct sim_event *e = event_find(handle);
	struct sim_stream *s;
	struct sim_mark *mark;
	struct sim_op *op;
	CUresult result = e ? stream_get(stream, ptds, &s) : CUDA_ERROR_INVALID_HANDLE;

	if (result != CUDA_SUCCESS)
		return result;
	if (s->capture) {
		e->capture = s->capture;
		return s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
	}
	op = op_new(OP_RECORD);
	mark = calloc(1, sizeof(*mark));
	if (!op || !mark) {
		free(op);
		free(mark);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->mark = mark_get(mark_get(mark));
	result = stream_submit(s, op);
	if (result != CUDA_SUCCESS) {
		mark_put(mark);
		return result;
	}
	mark_put(e->mark);
	e->mark = mark;
	e->capture = NULL;
	return CUDA_SUCCESS;
}

SIM_TWINS(cuEventRecord, _ptsz, event_record, (CUevent event, CUstream stream), event, stream)

static CUresult event_record_with_flags(bool ptds, CUevent event, CUstream stream,
					unsigned int flags)
{
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return event_record(ptds, event, stream);
}

SIM_TWINS(cuEventRecordWithFlags, _ptsz, event_record_with_flags,
	  (CUevent event, CUstream stream, unsigned int flags), event, stream, flags)

/* To ask about. An event that was recorded in a capture stands for no point in time. */
static CUresult event_get(CUevent handle, struct sim_event **event)
{
	struct sim_event *e = event_find(handle);
	CUresult result = capture_check_unsafe();

	if (result != CUDA_SUCCESS)
		return result;
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (e->capture) {
		e->capture->invalid = true;
		return CUDA_ERROR_CAPTURED_EVENT;
	}
	*event = e;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuEventQuery(CUevent handle)
{
	struct sim_event *e;
	CUresult result;

	SIM_ENTER(cuEventQuery, NEED_CONTEXT);
	result = event_get(handle, &e);
	if (result == CUDA_SUCCESS && e->mark && !e->mark->done)
		result = CUDA_ERROR_NOT_READY;
	return result;
}

SIM_EXPORT cuEventSynchronize(CUevent handle)
{
	struct sim_mark *mark;
	struct sim_event *e;
	CUresult result;

	SIM_ENTER(cuEventSynchronize, NEED_CONTEXT);
	result = event_get(handle, &e);
	if (result != CUDA_SUCCESS || !e->mark)
		return result;
	mark = mark_get(e->mark);
	while (!mark->done)
		sim_wait(0);
	mark_put(mark);
	return ctx_current()->error;
}

static CUresult event_elapsed(float *ms, CUevent start, CUevent end)
{
	struct sim_event *a, *b;
	CUresult result = event_get(start, &a);

	if (result == CUDA_SUCCESS)
		result = event_get(end, &b);
	if (result != CUDA_SUCCESS)
		return result;
	if (!a->mark || !b->mark || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!a->mark->done || !b->mark->done)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(b->mark->ns - a->mark->ns) / 1e6);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	SIM_ENTER(cuEventElapsedTime, NEED_CONTEXT);
	return event_elapsed(ms, start, end);
}

SIM_EXPORT cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	SIM_ENTER(cuEventElapsedTime_v2, NEED_CONTEXT);
	return event_elapsed(ms, start, end);
}

/*
 * Waiting for a captured event draws the stream into the capture. The graph keeps operations in
 * the order of submission, which satisfies every dependency, so there is no edge to add.
 */
static CUresult wait_captured(struct sim_stream *s, struct sim_event *e)
{
	if (s->capture && s->capture != e->capture) {
		e->capture->invalid = true;
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (s->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	s->capture = e->capture;
	return CUDA_SUCCESS;
}

static CUresult stream_wait_event(bool ptds, CUstream stream, CUevent handle, unsigned int flags)
{
	struct sim_event *e = event_find(handle);
	struct sim_stream *s;
	struct sim_op *op;
	CUresult result = e ? stream_get(stream, ptds, &s) : CUDA_ERROR_INVALID_HANDLE;

	(void)flags;
	if (result != CUDA_SUCCESS)
		return result;
	if (e->capture)
		return wait_captured(s, e);
	if (s->capture) {
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (!e->mark)
		return CUDA_SUCCESS;
	op = op_new(OP_WAIT);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->mark = mark_get(e->mark);
	return stream_submit(s, op);
}

SIM_TWINS(cuStreamWaitEvent, _ptsz, stream_wait_event,
	  (CUstream stream, CUevent event, unsigned int flags), stream, event, flags)
