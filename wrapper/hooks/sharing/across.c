/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/sharing/across.h"
#include "common/gpu/gpu.h"
#include "vmem/vmem.h"
#include "wrapper/hooks/sharing/ipc.h"
#include "wrapper/real.h"

static uint64_t bit(CUdevice dev)
{
	return dev >= 0 && dev < GPU_MAX ? UINT64_C(1) << dev : 0;
}

void across_range(struct across *a, CUdeviceptr ptr)
{
	struct vmem_info info;

	if (vmem_lookup(ptr, &info))
		a->owners |= bit(info.dev);
	else if (ipc_lookup(ptr, &info))
		a->opened |= bit(info.dev);
}

void across_linear(struct across *a, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	across_range(a, dst);
	across_range(a, src);
	a->linear = true;
	a->copy = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				       .srcDevice = src,
				       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				       .dstDevice = dst,
				       .WidthInBytes = bytes,
				       .Height = 1,
				       .Depth = 1};
}

/* One side of a copy. Its address may be in either member, as both kinds lie in one space. */
static void side(struct across *a, CUmemorytype type, CUdeviceptr device, const void *host)
{
	if (type == CU_MEMORYTYPE_HOST)
		across_range(a, (CUdeviceptr)host);
	else if (type != CU_MEMORYTYPE_ARRAY)
		across_range(a, device);
}

static bool is_device(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

void across_copy_3d(struct across *a, const CUDA_MEMCPY3D_v2 *copy)
{
	if (!copy)
		return;
	side(a, copy->srcMemoryType, copy->srcDevice, copy->srcHost);
	side(a, copy->dstMemoryType, copy->dstDevice, copy->dstHost);
	if (!is_device(copy->srcMemoryType) || !is_device(copy->dstMemoryType))
		return;
	a->copy = (CUDA_MEMCPY3D_PEER){.srcXInBytes = copy->srcXInBytes,
				       .srcY = copy->srcY,
				       .srcZ = copy->srcZ,
				       .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				       .srcDevice = copy->srcDevice,
				       .srcPitch = copy->srcPitch,
				       .srcHeight = copy->srcHeight,
				       .dstXInBytes = copy->dstXInBytes,
				       .dstY = copy->dstY,
				       .dstZ = copy->dstZ,
				       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				       .dstDevice = copy->dstDevice,
				       .dstPitch = copy->dstPitch,
				       .dstHeight = copy->dstHeight,
				       .WidthInBytes = copy->WidthInBytes,
				       .Height = copy->Height,
				       .Depth = copy->Depth};
}

void across_copy_2d(struct across *a, const CUDA_MEMCPY2D_v2 *copy)
{
	CUDA_MEMCPY3D_v2 solid;

	if (!copy)
		return;
	solid = (CUDA_MEMCPY3D_v2){.srcXInBytes = copy->srcXInBytes,
				   .srcY = copy->srcY,
				   .srcMemoryType = copy->srcMemoryType,
				   .srcHost = copy->srcHost,
				   .srcDevice = copy->srcDevice,
				   .srcPitch = copy->srcPitch,
				   .srcHeight = copy->srcY + copy->Height,
				   .dstXInBytes = copy->dstXInBytes,
				   .dstY = copy->dstY,
				   .dstMemoryType = copy->dstMemoryType,
				   .dstHost = copy->dstHost,
				   .dstDevice = copy->dstDevice,
				   .dstPitch = copy->dstPitch,
				   .dstHeight = copy->dstY + copy->Height,
				   .WidthInBytes = copy->WidthInBytes,
				   .Height = copy->Height,
				   .Depth = 1};
	across_copy_3d(a, &solid);
}

void across_copy_3d_peer(struct across *a, const CUDA_MEMCPY3D_PEER *copy)
{
	if (!copy)
		return;
	side(a, copy->srcMemoryType, copy->srcDevice, copy->srcHost);
	side(a, copy->dstMemoryType, copy->dstDevice, copy->dstHost);
	across_context(a, copy->srcContext);
	across_context(a, copy->dstContext);
}

void across_copy_batch(struct across *a, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
		       size_t count)
{
	for (size_t i = 0; dsts && srcs && i < count; i++) {
		across_range(a, dsts[i]);
		across_range(a, srcs[i]);
	}
}

static void operand(struct across *a, const CUmemcpy3DOperand *o)
{
	if (o->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		across_range(a, o->op.ptr.ptr);
}

void across_copy_3d_batch(struct across *a, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	for (size_t i = 0; ops && i < count; i++) {
		operand(a, &ops[i].src);
		operand(a, &ops[i].dst);
	}
}

void across_node(struct across *a, const CUgraphNodeParams *node)
{
	if (!node || node->type != CU_GRAPH_NODE_TYPE_MEMCPY)
		return;
	across_copy_3d(a, &node->memcpy.copyParams);
	across_context(a, node->memcpy.copyCtx);
}

void across_stream(struct across *a, CUstream stream)
{
	CUcontext ctx;

	if (stream && !real.cuStreamGetCtx(stream, &ctx))
		across_context(a, ctx);
}

static void current_device(struct across *a)
{
	CUdevice dev;

	if (!real.cuCtxGetDevice(&dev))
		a->users |= bit(dev);
}

void across_context(struct across *a, CUcontext ctx)
{
	if (!ctx || real.cuCtxPushCurrent_v2(ctx))
		return;
	current_device(a);
	real.cuCtxPopCurrent_v2(&ctx);
}

/* True if @dev can copy from and to more of the memory of @owner now. */
static bool grant(const struct across *a, CUdevice dev, CUdevice owner)
{
	bool granted = false;
	int can = dev == owner;

	if (!can && (real.cuDeviceCanAccessPeer(&can, dev, owner) || !can))
		return false;
	if (a->owners & bit(owner) && dev != owner)
		granted = vmem_copies_enable(dev, owner) == CUDA_SUCCESS;
	if (a->opened & bit(owner))
		granted |= ipc_copies_enable(dev, owner);
	return granted;
}

bool across_grant(struct across *a)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t touched = a->owners | a->opened;
	bool granted = false;

	if (!touched)
		return false;
	current_device(a);
	a->users |= touched;
	if (!a->opened && a->users == touched && !(touched & (touched - 1)))
		return false;
	/* An open capture must not forbid the calls that give access, nor be broken by them. */
	if (real.cuThreadExchangeStreamCaptureMode(&mode))
		return false;
	for (CUdevice owner = 0; owner < GPU_MAX; owner++)
		for (CUdevice dev = 0; dev < GPU_MAX; dev++)
			if (touched & bit(owner) && a->users & bit(dev))
				granted |= grant(a, dev, owner);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	return granted;
}

/* The context of device memory, or NULL. */
static CUcontext owner_of(CUdeviceptr ptr)
{
	struct vmem_info info;
	CUcontext ctx = NULL;

	if (vmem_lookup(ptr, &info) || ipc_lookup(ptr, &info))
		return info.ctx;
	if (real.cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr))
		return NULL;
	return ctx;
}

static CUresult copy_linear(const CUDA_MEMCPY3D_PEER *c, CUstream stream, unsigned int how)
{
	switch (how) {
	case 0:
		return real.cuMemcpyPeer(c->dstDevice, c->dstContext, c->srcDevice, c->srcContext,
					 c->WidthInBytes);
	case ACROSS_PER_THREAD:
		return real.cuMemcpyPeer_ptds(c->dstDevice, c->dstContext, c->srcDevice,
					      c->srcContext, c->WidthInBytes);
	case ACROSS_ASYNC:
		return real.cuMemcpyPeerAsync(c->dstDevice, c->dstContext, c->srcDevice,
					      c->srcContext, c->WidthInBytes, stream);
	default:
		return real.cuMemcpyPeerAsync_ptsz(c->dstDevice, c->dstContext, c->srcDevice,
						   c->srcContext, c->WidthInBytes, stream);
	}
}

static CUresult copy_box(const CUDA_MEMCPY3D_PEER *c, CUstream stream, unsigned int how)
{
	switch (how) {
	case 0:
		return real.cuMemcpy3DPeer(c);
	case ACROSS_PER_THREAD:
		return real.cuMemcpy3DPeer_ptds(c);
	case ACROSS_ASYNC:
		return real.cuMemcpy3DPeerAsync(c, stream);
	default:
		return real.cuMemcpy3DPeerAsync_ptsz(c, stream);
	}
}

CUresult across_staged(struct across *a, CUstream stream, unsigned int how)
{
	CUDA_MEMCPY3D_PEER *c = &a->copy;

	if (!(a->owners | a->opened) || !c->WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	c->srcContext = owner_of(c->srcDevice);
	c->dstContext = owner_of(c->dstDevice);
	if (!c->srcContext || !c->dstContext || c->srcContext == c->dstContext)
		return CUDA_ERROR_INVALID_VALUE;
	return a->linear ? copy_linear(c, stream, how) : copy_box(c, stream, how);
}
