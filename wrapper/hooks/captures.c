/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that begin and end stream captures. A capture is known before the driver begins it, so
 * that no thread takes it for closed, and it is forgotten before the driver ends it.
 */
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/queries.h"
#include "vmem/addresses/translate.h"
#include "wrapper/current.h"
#include "wrapper/hooks/ordered/entering.h"
#include "wrapper/hooks/ordered/fence.h"
#include "wrapper/hooks/ordered/pool_streams.h"
#include "wrapper/real.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/translated/windows.h"

#include <stddef.h>

/* Before the driver begins a capture. NULL: no host memory for one more. */
static struct capture *beginning(CUstream stream, bool into)
{
	CUcontext ctx = current_context();
	struct capture *c;

	fence_before_capture();
	c = captures_begin(stream, ctx, into);
	streams_before_capture(stream);
	entering_wait();
	return c;
}

static CUresult begun(struct capture *c, CUresult result)
{
	captures_begun(c, result == CUDA_SUCCESS);
	return result;
}

CUresult hook_cuStreamBeginCapture(CUstream hStream)
{
	struct capture *c = beginning(hStream, false);

	return c ? begun(c, real.cuStreamBeginCapture(hStream)) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream hStream)
{
	struct capture *c = beginning(per_thread(hStream), false);

	return c ? begun(c, real.cuStreamBeginCapture_ptsz(hStream)) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	struct capture *c = beginning(hStream, false);

	return c ? begun(c, real.cuStreamBeginCapture_v2(hStream, mode)) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	struct capture *c = beginning(per_thread(hStream), false);

	return c ? begun(c, real.cuStreamBeginCapture_v2_ptsz(hStream, mode))
		 : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
					  const CUgraphNode *dependencies,
					  const CUgraphEdgeData *dependencyData,
					  size_t numDependencies, CUstreamCaptureMode mode)
{
	struct capture *c = beginning(hStream, true);

	return c ? begun(c, real.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies,
							     dependencyData, numDependencies, mode))
		 : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
					       const CUgraphNode *dependencies,
					       const CUgraphEdgeData *dependencyData,
					       size_t numDependencies, CUstreamCaptureMode mode)
{
	struct capture *c = beginning(per_thread(hStream), true);

	return c ? begun(c, real.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies,
								  dependencyData, numDependencies,
								  mode))
		 : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Before the driver ends a capture. */
static bool ending(CUstream stream)
{
	streams_capture_ending();
	return captures_remove(stream, current_context());
}

/* The driver has refused to end it, or its stream. */
static void capture_lives(CUstream stream, CUcontext ctx, bool into)
{
	struct capture *c = captures_begin(stream, ctx, into);

	if (c)
		captures_begun(c, true);
}

/*
 * A graph that existed before the capture is known, or belongs to a node (graphs.h). A call that fails has
 * ended the capture, or not: one that only another thread may end goes on.
 */
static CUresult captured(CUresult result, CUstream stream, const CUgraph *graph, bool into)
{
	CUstreamCaptureStatus status;

	if (result && !real.cuStreamIsCapturing(stream, &status) &&
	    status != CU_STREAM_CAPTURE_STATUS_NONE)
		capture_lives(stream, current_context(), into);
	streams_capture_ended();
	if (!result && !into && translate_is_on())
		graphs_add(*graph);
	return result;
}

CUresult hook_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	bool into = ending(hStream);

	return captured(real.cuStreamEndCapture(hStream, phGraph), hStream, phGraph, into);
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	CUstream stream = per_thread(hStream);
	bool into = ending(stream);

	return captured(real.cuStreamEndCapture_ptsz(hStream, phGraph), stream, phGraph, into);
}

static CUresult destroy(CUstream stream, CUresult (*in_driver)(CUstream))
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUcontext ctx = NULL;
	struct stream *s;
	CUresult result;
	bool into;

	if (captures_open(driver_table()) && real.cuStreamIsCapturing(stream, &status))
		status = CU_STREAM_CAPTURE_STATUS_NONE;
	into = captures_remove(stream, current_context());
	queries_remove(QUERY_STREAM, stream);
	windows_remove(stream);
	s = streams_ending(stream);
	result = in_driver(stream);
	streams_ended(s, result);
	if (result && status != CU_STREAM_CAPTURE_STATUS_NONE) {
		real.cuStreamGetCtx(stream, &ctx);
		capture_lives(stream, ctx, into);
	}
	return result;
}

CUresult hook_cuStreamDestroy(CUstream hStream)
{
	return destroy(hStream, real.cuStreamDestroy);
}

CUresult hook_cuStreamDestroy_v2(CUstream hStream)
{
	return destroy(hStream, real.cuStreamDestroy_v2);
}
