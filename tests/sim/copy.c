/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and sets. What the device must reach is checked at the call (CUDA_ERROR_INVALID_VALUE);
 * what is unmapped later faults when the operation runs (CUDA_ERROR_ILLEGAL_ADDRESS, for good).
 *
 * Synchronous calls are operations on the default stream, which they wait for, except copies within
 * device memory and sets: those return at once, unless the memory has the attribute SYNC_MEMOPS. As
 * with the real driver, an "asynchronous" copy from or to memory that is not page-locked returns
 * when it is done.
 */
#include "tests/sim/sim.h"

static CUresult copy_submit(struct sim_stream *s, void *dst, const void *src, size_t size,
			    enum sim_direction direction)
{
	struct sim_op *op = op_new(OP_COPY);

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->copy.dst = dst;
	op->copy.src = src;
	op->copy.size = size;
	op->copy.direction = (int)direction;
	op->ctx = s->ctx;
	return stream_submit(s, op);
}

static bool in_device(CUdeviceptr ptr)
{
	const struct sim_map *map = map_find(ptr);

	return map && map->kind < MAP_MANAGED;
}

static bool is_marked(CUdeviceptr ptr)
{
	const struct sim_map *map = map_find(ptr);

	return map && map->sync_memops;
}

CUresult copy_between(struct sim_stream *s, const struct sim_ctx *dst_ctx, CUdeviceptr dst,
		      const struct sim_ctx *src_ctx, CUdeviceptr src, size_t size,
		      enum sim_direction direction, bool sync)
{
	CUresult result;

	if ((direction != TO_HOST && !map_reached(dst_ctx, dst, size, true)) ||
	    (direction != TO_DEVICE && !map_reached(src_ctx, src, size, true)))
		return CUDA_ERROR_INVALID_VALUE;
	if (sync && s->capture) {
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (!size)
		return CUDA_SUCCESS;
	result = copy_submit(s, (void *)dst, (const void *)src, size, direction);
	if (result != CUDA_SUCCESS || s->capture)
		return result;
	if (sync ? in_device(dst) && in_device(src) && !is_marked(dst) && !is_marked(src)
		 : map_covers(dst, size) && map_covers(src, size))
		return CUDA_SUCCESS;
	return stream_wait(s);
}

CUresult copy_linear(struct sim_stream *s, CUdeviceptr dst, CUdeviceptr src, size_t size,
		     enum sim_direction direction, bool sync)
{
	return copy_between(s, s->ctx, dst, s->ctx, src, size, direction, sync);
}

enum sim_direction copy_direction(CUdeviceptr dst, CUdeviceptr src)
{
	struct sim_map *d = map_find(dst), *s = map_find(src);
	bool to_host = !d || d->kind >= MAP_HOST, from_host = !s || s->kind >= MAP_HOST;

	if (from_host && !to_host)
		return TO_DEVICE;
	return to_host && !from_host ? TO_HOST : ON_DEVICE;
}

static CUresult copy_htod(bool ptds, CUdeviceptr dst, const void *src, size_t size)
{
	struct sim_stream *s;
	CUresult result = stream_get(NULL, ptds, &s);

	return result ? result : copy_linear(s, dst, (CUdeviceptr)src, size, TO_DEVICE, true);
}

static CUresult copy_dtoh(bool ptds, void *dst, CUdeviceptr src, size_t size)
{
	struct sim_stream *s;
	CUresult result = stream_get(NULL, ptds, &s);

	return result ? result : copy_linear(s, (CUdeviceptr)dst, src, size, TO_HOST, true);
}

static CUresult copy_dtod(bool ptds, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct sim_stream *s;
	CUresult result = stream_get(NULL, ptds, &s);

	return result ? result : copy_linear(s, dst, src, size, ON_DEVICE, true);
}

static CUresult copy_any(bool ptds, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct sim_stream *s;
	CUresult result = stream_get(NULL, ptds, &s);

	return result ? result : copy_linear(s, dst, src, size, copy_direction(dst, src), true);
}

static CUresult copy_htod_async(bool ptds, CUdeviceptr dst, const void *src, size_t size,
				CUstream stream)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	return result ? result : copy_linear(s, dst, (CUdeviceptr)src, size, TO_DEVICE, false);
}

static CUresult copy_dtoh_async(bool ptds, void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	return result ? result : copy_linear(s, (CUdeviceptr)dst, src, size, TO_HOST, false);
}

static CUresult copy_dtod_async(bool ptds, CUdeviceptr dst, CUdeviceptr src, size_t size,
				CUstream stream)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	return result ? result : copy_linear(s, dst, src, size, ON_DEVICE, false);
}

/* Each side is reached by its own context. */
static CUresult copy_peer(bool ptds, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
			  CUcontext src_ctx, size_t size, CUstream stream, bool sync)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ctx_find(dst_ctx) || !ctx_find(src_ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	return copy_between(s, ctx_find(dst_ctx), dst, ctx_find(src_ctx), src, size, ON_DEVICE,
			    sync);
}

static CUresult copy_any_async(bool ptds, CUdeviceptr dst, CUdeviceptr src, size_t size,
			       CUstream stream)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);

	return result ? result : copy_linear(s, dst, src, size, copy_direction(dst, src), false);
}

SIM_TWINS(cuMemcpyHtoD_v2, _ptds, copy_htod, (CUdeviceptr dst, const void *src, size_t size), dst,
	  src, size)
SIM_TWINS(cuMemcpyDtoH_v2, _ptds, copy_dtoh, (void *dst, CUdeviceptr src, size_t size), dst, src,
	  size)
SIM_TWINS(cuMemcpyDtoD_v2, _ptds, copy_dtod, (CUdeviceptr dst, CUdeviceptr src, size_t size), dst,
	  src, size)
SIM_TWINS(cuMemcpy, _ptds, copy_any, (CUdeviceptr dst, CUdeviceptr src, size_t size), dst, src,
	  size)
SIM_TWINS(cuMemcpyPeer, _ptds, copy_peer,
	  (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size),
	  dst, dst_ctx, src, src_ctx, size, NULL, true)
SIM_TWINS(cuMemcpyHtoDAsync_v2, _ptsz, copy_htod_async,
	  (CUdeviceptr dst, const void *src, size_t size, CUstream stream), dst, src, size, stream)
SIM_TWINS(cuMemcpyDtoHAsync_v2, _ptsz, copy_dtoh_async,
	  (void *dst, CUdeviceptr src, size_t size, CUstream stream), dst, src, size, stream)
SIM_TWINS(cuMemcpyDtoDAsync_v2, _ptsz, copy_dtod_async,
	  (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream), dst, src, size, stream)
SIM_TWINS(cuMemcpyAsync, _ptsz, copy_any_async,
	  (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream), dst, src, size, stream)
SIM_TWINS(cuMemcpyPeerAsync, _ptsz, copy_peer,
	  (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size,
	   CUstream stream),
	  dst, dst_ctx, src, src_ctx, size, stream, false)

static CUresult set_async(bool ptds, CUdeviceptr dst, uint32_t value, size_t width, size_t count,
			  CUstream stream)
{
	struct sim_stream *s;
	CUresult result = stream_get(stream, ptds, &s);
	struct sim_op *op;

	if (result != CUDA_SUCCESS)
		return result;
	if (dst % width || !map_reached(s->ctx, dst, width * count, false))
		return CUDA_ERROR_INVALID_VALUE;
	if (!count)
		return CUDA_SUCCESS;
	op = op_new(OP_SET);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->set.dst = (void *)dst;
	op->set.value = value;
	op->set.width = width;
	op->set.count = count;
	op->ctx = s->ctx;
	return stream_submit(s, op);
}

/* Wait for a set without a stream, if @result is success. */
static CUresult set_ends(bool ptds, CUresult result, CUdeviceptr dst)
{
	struct sim_stream *s;

	if (result != CUDA_SUCCESS || !is_marked(dst))
		return result;
	result = stream_get(NULL, ptds, &s);
	return result ? result : stream_wait(s);
}

static CUresult set(bool ptds, CUdeviceptr dst, uint32_t value, size_t width, size_t count)
{
	return set_ends(ptds, set_async(ptds, dst, value, width, count, NULL), dst);
}

SIM_TWINS(cuMemsetD8_v2, _ptds, set, (CUdeviceptr dst, unsigned char value, size_t count), dst,
	  value, 1, count)
SIM_TWINS(cuMemsetD16_v2, _ptds, set, (CUdeviceptr dst, unsigned short value, size_t count), dst,
	  value, 2, count)
SIM_TWINS(cuMemsetD32_v2, _ptds, set, (CUdeviceptr dst, unsigned int value, size_t count), dst,
	  value, 4, count)
SIM_TWINS(cuMemsetD8Async, _ptsz, set_async,
	  (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream), dst, value, 1,
	  count, stream)
SIM_TWINS(cuMemsetD16Async, _ptsz, set_async,
	  (CUdeviceptr dst, unsigned short value, size_t count, CUstream stream), dst, value, 2,
	  count, stream)
SIM_TWINS(cuMemsetD32Async, _ptsz, set_async,
	  (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream), dst, value, 4,
	  count, stream)

static CUresult set_rows(bool ptds, CUdeviceptr dst, size_t pitch, uint32_t value, size_t width,
			 size_t count, size_t rows, CUstream stream)
{
	CUresult result =
		rows > 1 && pitch < width * count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	for (size_t y = 0; y < rows && result == CUDA_SUCCESS; y++)
		result = set_async(ptds, dst + y * pitch, value, width, count, stream);
	return result;
}

static CUresult set_rows_now(bool ptds, CUdeviceptr dst, size_t pitch, uint32_t value, size_t width,
			     size_t count, size_t rows)
{
	return set_ends(ptds, set_rows(ptds, dst, pitch, value, width, count, rows, NULL), dst);
}

SIM_TWINS(cuMemsetD2D8_v2, _ptds, set_rows_now,
	  (CUdeviceptr dst, size_t pitch, unsigned char value, size_t count, size_t rows), dst,
	  pitch, value, 1, count, rows)
SIM_TWINS(cuMemsetD2D16_v2, _ptds, set_rows_now,
	  (CUdeviceptr dst, size_t pitch, unsigned short value, size_t count, size_t rows), dst,
	  pitch, value, 2, count, rows)
SIM_TWINS(cuMemsetD2D32_v2, _ptds, set_rows_now,
	  (CUdeviceptr dst, size_t pitch, unsigned int value, size_t count, size_t rows), dst,
	  pitch, value, 4, count, rows)
SIM_TWINS(cuMemsetD2D8Async, _ptsz, set_rows,
	  (CUdeviceptr dst, size_t pitch, unsigned char value, size_t count, size_t rows,
	   CUstream stream),
	  dst, pitch, value, 1, count, rows, stream)
SIM_TWINS(cuMemsetD2D16Async, _ptsz, set_rows,
	  (CUdeviceptr dst, size_t pitch, unsigned short value, size_t count, size_t rows,
	   CUstream stream),
	  dst, pitch, value, 2, count, rows, stream)
SIM_TWINS(cuMemsetD2D32Async, _ptsz, set_rows,
	  (CUdeviceptr dst, size_t pitch, unsigned int value, size_t count, size_t rows,
	   CUstream stream),
	  dst, pitch, value, 4, count, rows, stream)

static CUresult copy_batch(bool ptds, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
			   const size_t *sizes, size_t count, CUstream stream)
{
	CUresult result =
		dsts && srcs && sizes && count && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = copy_any_async(ptds, dsts[i], srcs[i], sizes[i], stream);
	return result;
}

SIM_TWINS(cuMemcpyBatchAsync_v2, _ptsz, copy_batch,
	  (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	   CUmemcpyAttributes *attributes, size_t *indexes, size_t nattributes, CUstream stream),
	  ((void)attributes, (void)indexes, (void)nattributes, dsts), srcs, sizes, count, stream)
