/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of rectangles and boxes, from and to arrays as well: a linear copy for each row. */
#include "tests/sim/sim.h"

/* One side of a copy: where its first byte is, and how far its rows and slices lie apart. */
struct side {
	CUdeviceptr start;
	size_t pitch, slice;
	CUmemorytype type;
};

static CUresult array_side(CUarray handle, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *c,
			   struct side *side)
{
	const struct sim_array *a = array_find(handle);
	size_t height, depth;

	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	height = a->desc.Height ? a->desc.Height : 1;
	depth = a->desc.Depth ? a->desc.Depth : 1;
	if (x + c->WidthInBytes > a->row || y + c->Height > height || z + c->Depth > depth)
		return CUDA_ERROR_INVALID_VALUE;
	side->pitch = a->row;
	side->slice = a->row * height;
	side->start = a->data + z * side->slice + y * side->pitch + x;
	return CUDA_SUCCESS;
}

static CUresult linear_side(CUdeviceptr base, size_t x, size_t y, size_t z, size_t pitch,
			    size_t height, const CUDA_MEMCPY3D *c, struct side *side)
{
	if ((c->Height > 1 && pitch < c->WidthInBytes) || (c->Depth > 1 && height < c->Height))
		return CUDA_ERROR_INVALID_VALUE;
	side->pitch = pitch;
	side->slice = pitch * height;
	side->start = base + z * side->slice + y * pitch + x;
	return CUDA_SUCCESS;
}

static CUresult source_side(const CUDA_MEMCPY3D *c, struct side *side)
{
	CUdeviceptr base =
		c->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)c->srcHost : c->srcDevice;

	side->type = c->srcMemoryType;
	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
		return array_side(c->srcArray, c->srcXInBytes, c->srcY, c->srcZ, c, side);
	return linear_side(base, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch, c->srcHeight, c,
			   side);
}

static CUresult target_side(const CUDA_MEMCPY3D *c, struct side *side)
{
	CUdeviceptr base =
		c->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)c->dstHost : c->dstDevice;

	side->type = c->dstMemoryType;
	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return array_side(c->dstArray, c->dstXInBytes, c->dstY, c->dstZ, c, side);
	return linear_side(base, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch, c->dstHeight, c,
			   side);
}

static enum sim_direction direction_of(const struct side *dst, const struct side *src)
{
	if (dst->type == CU_MEMORYTYPE_HOST && src->type != CU_MEMORYTYPE_HOST)
		return TO_HOST;
	if (src->type == CU_MEMORYTYPE_HOST && dst->type != CU_MEMORYTYPE_HOST)
		return TO_DEVICE;
	return copy_direction(dst->start, src->start);
}

/* Each side is reached by its own context, or by the stream's where that is NULL. */
static CUresult copy_box_between(bool ptds, const CUDA_MEMCPY3D *c, const struct sim_ctx *dst_ctx,
				 const struct sim_ctx *src_ctx, CUstream handle, bool sync)
{
	struct side dst, src;
	struct sim_stream *s;
	CUresult result = stream_get(handle, ptds, &s);

	if (result == CUDA_SUCCESS)
		result = source_side(c, &src);
	if (result == CUDA_SUCCESS)
		result = target_side(c, &dst);
	for (size_t z = 0; z < c->Depth; z++)
		for (size_t y = 0; y < c->Height && result == CUDA_SUCCESS; y++)
			result = copy_between(s, dst_ctx ? dst_ctx : s->ctx,
					      dst.start + z * dst.slice + y * dst.pitch,
					      src_ctx ? src_ctx : s->ctx,
					      src.start + z * src.slice + y * src.pitch,
					      c->WidthInBytes, direction_of(&dst, &src), sync);
	return result;
}

static CUresult copy_box(bool ptds, const CUDA_MEMCPY3D *c, CUstream handle, bool sync)
{
	return copy_box_between(ptds, c, NULL, NULL, handle, sync);
}

static CUresult copy_rectangle(bool ptds, const CUDA_MEMCPY2D *r, CUstream handle, bool sync)
{
	CUDA_MEMCPY3D c = {
		.srcXInBytes = r->srcXInBytes,
		.srcY = r->srcY,
		.srcMemoryType = r->srcMemoryType,
		.srcHost = r->srcHost,
		.srcDevice = r->srcDevice,
		.srcArray = r->srcArray,
		.srcPitch = r->srcPitch,
		.dstXInBytes = r->dstXInBytes,
		.dstY = r->dstY,
		.dstMemoryType = r->dstMemoryType,
		.dstHost = r->dstHost,
		.dstDevice = r->dstDevice,
		.dstArray = r->dstArray,
		.dstPitch = r->dstPitch,
		.WidthInBytes = r->WidthInBytes,
		.Height = r->Height,
		.Depth = 1,
	};

	return copy_box(ptds, &c, handle, sync);
}

SIM_TWINS(cuMemcpy2D_v2, _ptds, copy_rectangle, (const CUDA_MEMCPY2D *copy), copy, NULL, true)
SIM_TWINS(cuMemcpy2DUnaligned_v2, _ptds, copy_rectangle, (const CUDA_MEMCPY2D *copy), copy, NULL,
	  true)
SIM_TWINS(cuMemcpy2DAsync_v2, _ptsz, copy_rectangle, (const CUDA_MEMCPY2D *copy, CUstream stream),
	  copy, stream, false)
SIM_TWINS(cuMemcpy3D_v2, _ptds, copy_box, (const CUDA_MEMCPY3D *copy), copy, NULL, true)
SIM_TWINS(cuMemcpy3DAsync_v2, _ptsz, copy_box, (const CUDA_MEMCPY3D *copy, CUstream stream), copy,
	  stream, false)

static CUresult copy_box_peer(bool ptds, const CUDA_MEMCPY3D_PEER *p, CUstream handle, bool sync)
{
	CUDA_MEMCPY3D c = {
		.srcXInBytes = p->srcXInBytes,
		.srcY = p->srcY,
		.srcZ = p->srcZ,
		.srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost,
		.srcDevice = p->srcDevice,
		.srcArray = p->srcArray,
		.srcPitch = p->srcPitch,
		.srcHeight = p->srcHeight,
		.dstXInBytes = p->dstXInBytes,
		.dstY = p->dstY,
		.dstZ = p->dstZ,
		.dstMemoryType = p->dstMemoryType,
		.dstHost = p->dstHost,
		.dstDevice = p->dstDevice,
		.dstArray = p->dstArray,
		.dstPitch = p->dstPitch,
		.dstHeight = p->dstHeight,
		.WidthInBytes = p->WidthInBytes,
		.Height = p->Height,
		.Depth = p->Depth,
	};

	return copy_box_between(ptds, &c, ctx_find(p->dstContext), ctx_find(p->srcContext), handle,
				sync);
}

SIM_TWINS(cuMemcpy3DPeer, _ptds, copy_box_peer, (const CUDA_MEMCPY3D_PEER *copy), copy, NULL, true)
SIM_TWINS(cuMemcpy3DPeerAsync, _ptsz, copy_box_peer,
	  (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), copy, stream, false)

/* @size bytes from or to those that lie @offset behind the begin of an array of one dimension. */
static CUresult copy_array(bool ptds, CUarray array, size_t offset, CUdeviceptr ptr,
			   CUmemorytype type, bool to_array, size_t size)
{
	CUDA_MEMCPY3D c = {.WidthInBytes = size, .Height = 1, .Depth = 1};

	c.srcMemoryType = to_array ? type : CU_MEMORYTYPE_ARRAY;
	c.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : type;
	c.srcArray = c.dstArray = array;
	c.srcDevice = c.dstDevice = ptr;
	c.srcHost = c.dstHost = (void *)ptr;
	if (to_array)
		c.dstXInBytes = offset;
	else
		c.srcXInBytes = offset;
	return copy_box(ptds, &c, NULL, true);
}

SIM_TWINS(cuMemcpyHtoA_v2, _ptds, copy_array,
	  (CUarray dst, size_t offset, const void *src, size_t size), dst, offset, (CUdeviceptr)src,
	  CU_MEMORYTYPE_HOST, true, size)
SIM_TWINS(cuMemcpyAtoH_v2, _ptds, copy_array, (void *dst, CUarray src, size_t offset, size_t size),
	  src, offset, (CUdeviceptr)dst, CU_MEMORYTYPE_HOST, false, size)
SIM_TWINS(cuMemcpyDtoA_v2, _ptds, copy_array,
	  (CUarray dst, size_t offset, CUdeviceptr src, size_t size), dst, offset, src,
	  CU_MEMORYTYPE_DEVICE, true, size)
SIM_TWINS(cuMemcpyAtoD_v2, _ptds, copy_array,
	  (CUdeviceptr dst, CUarray src, size_t offset, size_t size), src, offset, dst,
	  CU_MEMORYTYPE_DEVICE, false, size)

/* The pitch and the height are counted in elements, which are bytes where there is no array. */
static void operand(const CUmemcpy3DOperand *o, const CUextent3D *extent, CUdeviceptr *ptr,
		    size_t *pitch, size_t *height)
{
	*ptr = o->op.ptr.ptr;
	*pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : extent->width;
	*height = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent->height;
}

static CUresult copy_boxes(bool ptds, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops,
			   CUstream handle)
{
	CUresult result = CUDA_SUCCESS;

	if (!count || !ops)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		const CUDA_MEMCPY3D_BATCH_OP *op = &ops[i];
		CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
				   .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
				   .WidthInBytes = op->extent.width,
				   .Height = op->extent.height,
				   .Depth = op->extent.depth};

		if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
		    op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
			return CUDA_ERROR_NOT_SUPPORTED;
		operand(&op->src, &op->extent, &c.srcDevice, &c.srcPitch, &c.srcHeight);
		operand(&op->dst, &op->extent, &c.dstDevice, &c.dstPitch, &c.dstHeight);
		result = copy_box(ptds, &c, handle, false);
	}
	return result;
}

SIM_TWINS(cuMemcpy3DBatchAsync_v2, _ptsz, copy_boxes,
	  (size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream),
	  ((void)flags, count), ops, stream)
