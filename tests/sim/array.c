/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and mipmapped arrays: rows that lie one after the other, slices as well. A level of a
 * mipmap is an array of its own. Layers and cube maps are not there.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

#define MAX_LEVELS 16

struct sim_mipmap {
	struct sim_object obj;
	unsigned int count;
	struct sim_array *levels[MAX_LEVELS];
};

static size_t at_least_1(size_t n)
{
	return n ? n : 1;
}

static size_t format_size(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static CUresult array_new(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct sim_array **out)
{
	size_t element = format_size(desc->Format) * desc->NumChannels;
	struct sim_array *a;
	CUresult result;

	if (!element || !desc->Width || desc->NumChannels > 4 || (desc->Depth && !desc->Height))
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->Flags & ~(unsigned int)CUDA_ARRAY3D_SURFACE_LDST)
		return CUDA_ERROR_NOT_SUPPORTED;
	a = calloc(1, sizeof(*a));
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->ctx = ctx_current();
	a->desc = *desc;
	a->element = element;
	a->row = desc->Width * element;
	result = memory_new(a->ctx, a->row * at_least_1(desc->Height) * at_least_1(desc->Depth),
			    MAP_ARRAY, &a->data);
	if (result != CUDA_SUCCESS) {
		free(a);
		return result;
	}
	*out = a;
	return CUDA_SUCCESS;
}

/* The end of the context, if that came first, has freed the memory already. */
static void array_free(struct sim_array *a)
{
	struct sim_map *map = map_find(a->data);

	if (map && map->kind == MAP_ARRAY && map->start == a->data && map->ctx == a->ctx)
		memory_free(map);
	free(a);
}

static struct sim_mipmap *mipmap_find(CUmipmappedArray handle)
{
	return object_known(KIND_MIPMAP, handle) ? (struct sim_mipmap *)handle : NULL;
}

/* An array, or a level of a mipmap. */
struct sim_array *array_find(CUarray handle)
{
	if (object_known(KIND_ARRAY, handle))
		return (struct sim_array *)handle;
	for (struct sim_object *o = sim.objects[KIND_MIPMAP]; o; o = o->next) {
		struct sim_mipmap *m = (struct sim_mipmap *)o;

		for (unsigned int i = 0; i < m->count; i++)
			if (m->levels[i] == (struct sim_array *)handle)
				return m->levels[i];
	}
	return NULL;
}

static CUresult array_create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct sim_array *a;
	CUresult result = array_new(desc, &a);

	if (result != CUDA_SUCCESS)
		return result;
	object_add(KIND_ARRAY, &a->obj);
	*handle = (CUarray)a;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};

	SIM_ENTER(cuArrayCreate_v2, NEED_CONTEXT);
	d.Width = desc->Width;
	d.Height = desc->Height;
	d.Format = desc->Format;
	d.NumChannels = desc->NumChannels;
	return array_create(handle, &d);
}

SIM_EXPORT cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	SIM_ENTER(cuArray3DCreate_v2, NEED_CONTEXT);
	return array_create(handle, desc);
}

SIM_EXPORT cuArrayDestroy(CUarray handle)
{
	struct sim_array *a = (struct sim_array *)handle;
	CUresult result;

	SIM_ENTER(cuArrayDestroy, NEED_CONTEXT);
	if (!object_known(KIND_ARRAY, a))
		return CUDA_ERROR_INVALID_HANDLE;
	object_remove(&a->obj);
	result = ctx_wait(a->ctx);
	array_free(a);
	return result;
}

SIM_EXPORT cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray handle)
{
	SIM_ENTER(cuArray3DGetDescriptor_v2, NEED_CONTEXT);
	if (!array_find(handle))
		return CUDA_ERROR_INVALID_HANDLE;
	*desc = array_find(handle)->desc;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray handle)
{
	const struct sim_array *a;

	SIM_ENTER(cuArrayGetDescriptor_v2, NEED_CONTEXT);
	a = array_find(handle);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	desc->Width = a->desc.Width;
	desc->Height = a->desc.Height;
	desc->Format = a->desc.Format;
	desc->NumChannels = a->desc.NumChannels;
	return CUDA_SUCCESS;
}

static size_t halved(size_t n, unsigned int times)
{
	return n ? at_least_1(n >> times) : 0;
}

static void mipmap_free(struct sim_mipmap *m)
{
	while (m->count)
		array_free(m->levels[--m->count]);
	free(m);
}

SIM_EXPORT cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				  unsigned int levels)
{
	CUDA_ARRAY3D_DESCRIPTOR level;
	struct sim_mipmap *m;
	CUresult result = CUDA_SUCCESS;

	SIM_ENTER(cuMipmappedArrayCreate, NEED_CONTEXT);
	if (!levels || levels > MAX_LEVELS)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (m->count < levels && result == CUDA_SUCCESS) {
		level = *desc;
		level.Width = halved(desc->Width, m->count);
		level.Height = halved(desc->Height, m->count);
		level.Depth = halved(desc->Depth, m->count);
		result = array_new(&level, &m->levels[m->count]);
		if (result == CUDA_SUCCESS)
			m->count++;
	}
	if (result != CUDA_SUCCESS) {
		mipmap_free(m);
		return result;
	}
	object_add(KIND_MIPMAP, &m->obj);
	*handle = (CUmipmappedArray)m;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray handle, unsigned int level)
{
	struct sim_mipmap *m;

	SIM_ENTER(cuMipmappedArrayGetLevel, NEED_CONTEXT);
	m = mipmap_find(handle);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (level >= m->count)
		return CUDA_ERROR_INVALID_VALUE;
	*array = (CUarray)m->levels[level];
	return CUDA_SUCCESS;
}

SIM_EXPORT cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
	struct sim_mipmap *m;
	CUresult result;

	SIM_ENTER(cuMipmappedArrayDestroy, NEED_CONTEXT);
	m = mipmap_find(handle);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	object_remove(&m->obj);
	result = ctx_wait(m->levels[0]->ctx);
	mipmap_free(m);
	return result;
}
