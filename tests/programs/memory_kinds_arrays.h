/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_KINDS_ARRAYS_H
#define CUDAW_MEMORY_KINDS_ARRAYS_H
/*
 * The kinds of memory_kinds.c that lie in arrays:
 *
 *	array		one of two and one of three dimensions
 *	mipmap		the levels of a mipmapped array
 *	texture		an array that a surface object writes and a texture object reads
 *
 * Each step of the first two takes the arrays to linear memory and back.
 */
#include "tests/programs/memory_kinds.h"

#define ARRAY_SIDE 64U
#define BOX_SIDE   16U
#define LEVELS     3U

struct box {
	CUarray array;
	size_t width, height, depth; /* depth 0: two dimensions */
};

static struct box boxes[LEVELS];
static unsigned int nboxes;
static CUmipmappedArray mipmap;

static inline CUDA_ARRAY3D_DESCRIPTOR box_desc(size_t width, size_t height, size_t depth)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = width,
		.Height = height,
		.Depth = depth,
		.Format = CU_AD_FORMAT_UNSIGNED_INT32,
		.NumChannels = 1,
	};
}

static inline uint64_t box_words(const struct box *b)
{
	return b->width * b->height * (b->depth ? b->depth : 1);
}

static inline void copy_rectangle(const struct box *b, CUdeviceptr linear, bool to_array)
{
	size_t row = b->width * sizeof(uint32_t);
	CUDA_MEMCPY2D c = {
		.srcMemoryType = to_array ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY,
		.srcDevice = to_array ? linear : 0,
		.srcArray = to_array ? NULL : b->array,
		.srcPitch = to_array ? row : 0,
		.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
		.dstDevice = to_array ? 0 : linear,
		.dstArray = to_array ? b->array : NULL,
		.dstPitch = to_array ? 0 : row,
		.WidthInBytes = row,
		.Height = b->height,
	};

	CALL(cuMemcpy2DAsync_v2(&c, stream));
}

static inline void copy_box(const struct box *b, CUdeviceptr linear, bool to_array)
{
	size_t row = b->width * sizeof(uint32_t);
	CUDA_MEMCPY3D c = {
		.srcMemoryType = to_array ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY,
		.srcDevice = to_array ? linear : 0,
		.srcArray = to_array ? NULL : b->array,
		.srcPitch = to_array ? row : 0,
		.srcHeight = to_array ? b->height : 0,
		.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
		.dstDevice = to_array ? 0 : linear,
		.dstArray = to_array ? b->array : NULL,
		.dstPitch = to_array ? 0 : row,
		.dstHeight = to_array ? 0 : b->height,
		.WidthInBytes = row,
		.Height = b->height,
		.Depth = b->depth,
	};

	CALL(cuMemcpy3DAsync_v2(&c, stream));
}

/* All boxes from or to linear memory, one after the other. */
static inline void boxes_copy(CUdeviceptr linear, bool to_arrays)
{
	for (unsigned int i = 0; i < nboxes; i++) {
		(boxes[i].depth ? copy_box : copy_rectangle)(&boxes[i], linear, to_arrays);
		linear += box_words(&boxes[i]) * sizeof(uint32_t);
	}
}

static inline void boxes_start(void)
{
	words = 0;
	for (unsigned int i = 0; i < nboxes; i++)
		words += box_words(&boxes[i]);
	CALL(cuMemAlloc_v2(&data, words * sizeof(uint32_t)));
	upload_start(data);
	boxes_copy(data, true);
}

static inline void array_setup(void)
{
	CUDA_ARRAY3D_DESCRIPTOR box = box_desc(BOX_SIDE, BOX_SIDE, BOX_SIDE);
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = ARRAY_SIDE,
		.Height = ARRAY_SIDE,
		.Format = CU_AD_FORMAT_UNSIGNED_INT32,
		.NumChannels = 1,
	};

	boxes[nboxes++] = (struct box){.width = ARRAY_SIDE, .height = ARRAY_SIDE};
	boxes[nboxes++] = (struct box){NULL, BOX_SIDE, BOX_SIDE, BOX_SIDE};
	CALL(cuArrayCreate_v2(&boxes[0].array, &flat));
	CALL(cuArray3DCreate_v2(&boxes[1].array, &box));
	boxes_start();
}

/* What is in linear memory is destroyed after each copy: the arrays alone keep the words. */
static inline void boxes_step(unsigned long k)
{
	(void)k;
	boxes_copy(data, false);
	increment(data, words);
	boxes_copy(data, true);
	CALL(cuMemsetD32Async(data, 0, words, stream));
}

static inline void boxes_read(uint32_t *target)
{
	CUDA_ARRAY3D_DESCRIPTOR found;

	boxes_copy(data, false);
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemcpyDtoH_v2(target, data, words * sizeof(uint32_t)));
	for (unsigned int i = 0; i < nboxes; i++) {
		CALL(cuArray3DGetDescriptor_v2(&found, boxes[i].array));
		if (found.Width != boxes[i].width || found.Height != boxes[i].height ||
		    found.Depth != boxes[i].depth)
			step_die("memory_kinds: an array has another shape");
	}
}

static inline void array_finish(void)
{
	for (unsigned int i = 0; i < nboxes; i++)
		CALL(cuArrayDestroy(boxes[i].array));
}

static inline void mipmap_setup(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = box_desc(ARRAY_SIDE, ARRAY_SIDE, 0);

	CALL(cuMipmappedArrayCreate(&mipmap, &desc, LEVELS));
	for (; nboxes < LEVELS; nboxes++) {
		size_t side = ARRAY_SIDE >> nboxes;

		boxes[nboxes] = (struct box){.width = side, .height = side};
		CALL(cuMipmappedArrayGetLevel(&boxes[nboxes].array, mipmap, nboxes));
	}
	boxes_start();
}

static inline void mipmap_finish(void)
{
	CALL(cuMipmappedArrayDestroy(mipmap));
}

/* An array that a surface object writes and a texture object reads. */

static CUtexObject texture;
static CUsurfObject surface;
static CUfunction add_texels, increment_surface;

static inline void texture_setup(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = box_desc(ARRAY_SIDE, ARRAY_SIDE, 0);
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
	CUDA_TEXTURE_DESC how = {.flags = CU_TRSF_READ_AS_INTEGER};

	desc.Flags = CUDA_ARRAY3D_SURFACE_LDST;
	boxes[nboxes++] = (struct box){.width = ARRAY_SIDE, .height = ARRAY_SIDE};
	CALL(cuArray3DCreate_v2(&boxes[0].array, &desc));
	boxes_start();
	resource.res.array.hArray = boxes[0].array;
	CALL(cuTexObjectCreate(&texture, &resource, &how, NULL));
	CALL(cuSurfObjectCreate(&surface, &resource));
	CALL(cuModuleGetFunction(&add_texels, own, "add_texels"));
	CALL(cuModuleGetFunction(&increment_surface, own, "increment_surface"));
}

static inline void texture_step(unsigned long k)
{
	uint32_t width = ARRAY_SIDE;
	void *write[] = {&surface, &words, &width};

	(void)k;
	kernels_launch(increment_surface, stream, write);
}

static inline void texture_read(uint32_t *target)
{
	uint32_t width = ARRAY_SIDE;
	void *read[] = {&data, &words, &texture, &width};
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC how;

	CALL(cuMemsetD32Async(data, 0, words, stream));
	kernels_launch(add_texels, stream, read);
	CALL(cuStreamSynchronize(stream));
	CALL(cuMemcpyDtoH_v2(target, data, words * sizeof(uint32_t)));
	CALL(cuTexObjectGetResourceDesc(&resource, texture));
	CALL(cuTexObjectGetTextureDesc(&how, texture));
	if (resource.res.array.hArray != boxes[0].array || how.flags != CU_TRSF_READ_AS_INTEGER)
		step_die("memory_kinds: the texture is of something else");
}

static inline void texture_finish(void)
{
	CALL(cuTexObjectDestroy(texture));
	CALL(cuSurfObjectDestroy(surface));
	array_finish();
}

#endif
