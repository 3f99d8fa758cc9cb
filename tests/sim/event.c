/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. Each record makes a mark, which the worker completes; waits refer to the mark that was
 * the event's at that moment, so that recording an event anew does not move an earlier wait.
 *
 * An interprocess event counts its records in a memfd that the processes share, and a mark is one of
 * these numbers. Its handle says in which process the memfd is, which must be alive when it is opened.
 * The driver's checkpoint leaves such events as they are [H200, driver 580.159].
 */
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENT_MAGIC 0x5456454d4953u /* "SIMEVT" */
#define LOOK_NS     50000           /* how often another process is looked at */

struct event_record {
	uint64_t magic;
	int pid, fd;
};

_Static_assert(sizeof(struct event_record) <= sizeof(CUipcEventHandle), "it fits in a handle");

/* Takes over @fd. */
static struct sim_shared_event *shared_new(int fd)
{
	struct sim_shared_event *shared = calloc(1, sizeof(*shared));
	void *records = MAP_FAILED;

	if (shared && fd >= 0)
		records = mmap(NULL, sizeof(struct sim_records), PROT_READ | PROT_WRITE, MAP_SHARED,
			       fd, 0);
	if (records == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		free(shared);
		return NULL;
	}
	*shared = (struct sim_shared_event){.refs = 1, .fd = fd, .records = records};
	return shared;
}

static void shared_put(struct sim_shared_event *shared)
{
	if (!shared || --shared->refs)
		return;
	munmap(shared->records, sizeof(*shared->records));
	close(shared->fd);
	free(shared);
}

struct sim_mark *mark_get(struct sim_mark *mark)
{
	mark->refs++;
	return mark;
}

void mark_put(struct sim_mark *mark)
{
	if (!mark || --mark->refs)
		return;
	shared_put(mark->shared);
	free(mark);
}

bool mark_is_done(const struct sim_mark *mark)
{
	return mark->shared ? __atomic_load_n(&mark->shared->records->done, __ATOMIC_SEQ_CST) >=
				      mark->number
			    : mark->done;
}

void mark_complete(struct sim_mark *mark)
{
	uint64_t done;

	mark->done = true;
	mark->ns = sim_now();
	if (!mark->shared)
		return;
	/* Another process may complete a later one just now. */
	done = __atomic_load_n(&mark->shared->records->done, __ATOMIC_SEQ_CST);
	while (done < mark->number &&
	       !__atomic_compare_exchange_n(&mark->shared->records->done, &done, mark->number, true,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

uint64_t mark_deadline(const struct sim_mark *mark)
{
	return mark->shared ? sim_now() + LOOK_NS : 0;
}

static struct sim_mark *mark_new(const struct sim_event *e)
{
	struct sim_mark *mark = calloc(1, sizeof(*mark));

	if (!mark)
		return NULL;
	mark->refs = 1;
	mark->shared = e->shared;
	if (e->shared) {
		e->shared->refs++;
		mark->number = __atomic_load_n(&e->shared->records->made, __ATOMIC_SEQ_CST);
	}
	return mark;
}

/* That of the latest record: a reference, or NULL. */
static struct sim_mark *event_mark(struct sim_event *e)
{
	if (e->shared)
		return mark_new(e);
	return e->mark ? mark_get(e->mark) : NULL;
}

static struct sim_event *event_find(CUevent handle)
{
	return object_known(KIND_EVENT, handle) ? (struct sim_event *)handle : NULL;
}

/* Takes over @shared. */
static CUresult event_new(unsigned int flags, struct sim_shared_event *shared, CUevent *event)
{
	struct sim_event *e = calloc(1, sizeof(*e));

	if (!e) {
		shared_put(shared);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e->flags = flags;
	e->shared = shared;
	object_add(KIND_EVENT, &e->obj);
	*event = (CUevent)e;
	return CUDA_SUCCESS;
}

static struct sim_shared_event *records_new(void)
{
	int fd = memfd_create("simulated-gpu-event", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, sizeof(struct sim_records))) {
		close(fd);
		return NULL;
	}
	return shared_new(fd);
}

SIM_EXPORT cuEventCreate(CUevent *event, unsigned int flags)
{
	struct sim_shared_event *shared = NULL;

	SIM_ENTER(cuEventCreate, NEED_CONTEXT);
	if (flags & CU_EVENT_INTERPROCESS) {
		if (!(flags & CU_EVENT_DISABLE_TIMING))
			return CUDA_ERROR_INVALID_VALUE;
		shared = records_new();
		if (!shared)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return event_new(flags, shared, event);
}

SIM_EXPORT cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	struct event_record record = {.magic = EVENT_MAGIC, .pid = getpid()};
	struct sim_event *e;

	SIM_ENTER(cuIpcGetEventHandle, NEED_CONTEXT);
	e = event_find(event);
	if (!e || !e->shared)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	record.fd = e->shared->fd;
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &record, sizeof(record));
	return CUDA_SUCCESS;
}

SIM_EXPORT cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	struct sim_shared_event *shared;
	struct event_record record;
	char path[64];

	SIM_ENTER(cuIpcOpenEventHandle, NEED_CONTEXT);
	memcpy(&record, &handle, sizeof(record));
	if (!event || record.magic != EVENT_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", record.pid, record.fd);
	shared = shared_new(open(path, O_RDWR | O_CLOEXEC));
	if (!shared)
		return CUDA_ERROR_INVALID_HANDLE;
	return event_new(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared, event);
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
	shared_put(e->shared);
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
	mark = mark_new(e);
	if (!op || !mark) {
		free(op);
		mark_put(mark);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->mark = mark_get(mark);
	result = stream_submit(s, op);
	if (result != CUDA_SUCCESS) {
		mark_put(mark);
		return result;
	}
	e->capture = NULL;
	if (e->shared) {
		mark->number = __atomic_add_fetch(&e->shared->records->made, 1, __ATOMIC_SEQ_CST);
		mark_put(mark);
		return CUDA_SUCCESS;
	}
	mark_put(e->mark);
	e->mark = mark;
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
	struct sim_mark *mark;
	struct sim_event *e;
	CUresult result;

	SIM_ENTER(cuEventQuery, NEED_CONTEXT);
	result = event_get(handle, &e);
	if (result != CUDA_SUCCESS)
		return result;
	mark = event_mark(e);
	if (mark && !mark_is_done(mark))
		result = CUDA_ERROR_NOT_READY;
	mark_put(mark);
	return result;
}

SIM_EXPORT cuEventSynchronize(CUevent handle)
{
	struct sim_mark *mark;
	struct sim_event *e;
	CUresult result;

	SIM_ENTER(cuEventSynchronize, NEED_CONTEXT);
	result = event_get(handle, &e);
	mark = result == CUDA_SUCCESS ? event_mark(e) : NULL;
	if (!mark)
		return result;
	while (!mark_is_done(mark))
		sim_wait(mark_deadline(mark));
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
	struct sim_mark *mark;
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
	mark = event_mark(e);
	if (!mark)
		return CUDA_SUCCESS;
	op = op_new(OP_WAIT);
	if (!op) {
		mark_put(mark);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->mark = mark;
	return stream_submit(s, op);
}

SIM_TWINS(cuStreamWaitEvent, _ptsz, stream_wait_event,
	  (CUstream stream, CUevent event, unsigned int flags), stream, event, flags)
