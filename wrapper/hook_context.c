/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that tell which contexts, peers and stream captures there are. Memory belongs to its
 * context: when that goes, so does the memory.
 */
#include "calls.h"
#include "checkpoint/captures.h"
#include "checkpoint/contexts.h"
#include "vmem/vmem.h"
#include "wrapper/driver.h"

#include <stddef.h>

static CUresult created(CUresult result, const CUcontext *ctx, CUdevice dev)
{
	if (!result)
		contexts_add(*ctx, dev);
	return result;
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return created(real.cuCtxCreate_v2(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			     unsigned int flags, CUdevice dev)
{
	return created(real.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
			     unsigned int flags, CUdevice dev)
{
	return created(real.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev), pctx, dev);
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult result = real.cuCtxDestroy_v2(ctx);

	if (!result) {
		contexts_remove(ctx);
		if (driver_table())
			vmem_release_context(ctx);
	}
	return result;
}

/* The primary context of @dev, or NULL where it is not active (and must not be made so). */
static CUcontext primary_context(CUdevice dev)
{
	CUcontext ctx = NULL;
	unsigned int flags;
	int active = 0;

	if (real.cuDevicePrimaryCtxGetState(dev, &flags, &active) || !active ||
	    real.cuDevicePrimaryCtxRetain(&ctx, dev))
		return NULL;
	real.cuDevicePrimaryCtxRelease_v2(dev);
	return ctx;
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUcontext ctx = primary_context(dev);
	CUresult result = real.cuDevicePrimaryCtxRelease_v2(dev);

	if (!result && ctx && !primary_context(dev) && driver_table())
		vmem_release_context(ctx);
	return result;
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUcontext ctx = primary_context(dev);
	CUresult result = real.cuDevicePrimaryCtxReset_v2(dev);

	if (!result && ctx && driver_table())
		vmem_release_context(ctx);
	return result;
}

static CUresult device_of(CUcontext ctx, CUdevice *dev)
{
	CUresult result = real.cuCtxPushCurrent_v2(ctx);

	if (result)
		return result;
	result = real.cuCtxGetDevice(dev);
	real.cuCtxPopCurrent_v2(&ctx);
	return result;
}

/* The current context gets access to the memory of @peerContext, or loses it. */
static CUresult change_peer(CUresult result, CUcontext peerContext,
			    CUresult (*change)(CUdevice dev, CUdevice peer))
{
	CUdevice dev, owner;

	if (result || !driver_table() || real.cuCtxGetDevice(&dev) ||
	    device_of(peerContext, &owner))
		return result;
	return change(owner, dev);
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	return change_peer(real.cuCtxEnablePeerAccess(peerContext, Flags), peerContext,
			   vmem_peer_enable);
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peerContext)
{
	return change_peer(real.cuCtxDisablePeerAccess(peerContext), peerContext,
			   vmem_peer_disable);
}

static CUresult capture_began(CUresult result, CUstream stream)
{
	if (!result)
		captures_add(stream);
	return result;
}

CUresult hook_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	return capture_began(real.cuStreamBeginCapture_v2(hStream, mode), hStream);
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	return capture_began(real.cuStreamBeginCapture_v2_ptsz(hStream, mode),
			     hStream ? hStream : CU_STREAM_PER_THREAD);
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
					  const CUgraphNode *dependencies,
					  const CUgraphEdgeData *dependencyData,
					  size_t numDependencies, CUstreamCaptureMode mode)
{
	return capture_began(real.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies,
							      dependencyData, numDependencies,
							      mode),
			     hStream);
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
					       const CUgraphNode *dependencies,
					       const CUgraphEdgeData *dependencyData,
					       size_t numDependencies, CUstreamCaptureMode mode)
{
	return capture_began(real.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies,
								   dependencyData, numDependencies,
								   mode),
			     hStream ? hStream : CU_STREAM_PER_THREAD);
}

/* Whatever the outcome, the capture is over: one that failed was broken by it. */
CUresult hook_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	captures_remove(hStream);
	return real.cuStreamEndCapture(hStream, phGraph);
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	captures_remove(hStream ? hStream : CU_STREAM_PER_THREAD);
	return real.cuStreamEndCapture_ptsz(hStream, phGraph);
}

CUresult hook_cuStreamDestroy_v2(CUstream hStream)
{
	captures_remove(hStream);
	return real.cuStreamDestroy_v2(hStream);
}
