/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texture and surface objects. A kernel finds the element at whole coordinates of an array or of
 * linear memory; there is no filtering, no addressing mode and no conversion.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>

struct sim_texture {
	struct sim_object obj;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture; /* not of a surface */
	char *data;
	size_t element, row; /* bytes */
};

static void *element(const struct sim_texture *t, size_t x, size_t y)
{
	return t->data + y * t->row + x * t->element;
}

void *texture_element(CUtexObject texture, size_t x, size_t y)
{
	return element((const struct sim_texture *)texture, x, y);
}

void *surface_element(CUsurfObject surface, size_t x, size_t y)
{
	return element((const struct sim_texture *)surface, x, y);
}

static CUresult texture_new(enum sim_kind kind, const CUDA_RESOURCE_DESC *resource,
			    const CUDA_TEXTURE_DESC *texture, unsigned long long *handle)
{
	const struct sim_array *a = NULL;
	struct sim_texture *t;

	if (!handle || !resource || resource->flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (resource->resType != CU_RESOURCE_TYPE_ARRAY &&
	    (kind == KIND_SURFACE || resource->resType != CU_RESOURCE_TYPE_LINEAR))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (resource->resType == CU_RESOURCE_TYPE_ARRAY) {
		a = array_find(resource->res.array.hArray);
		if (!a || (kind == KIND_SURFACE && !(a->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST)))
			return CUDA_ERROR_INVALID_VALUE;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->resource = *resource;
	if (texture)
		t->texture = *texture;
	t->data = (char *)(a ? a->data : resource->res.linear.devPtr);
	t->element = a ? a->element : 4;
	t->row = a ? a->row : resource->res.linear.sizeInBytes;
	object_add(kind, &t->obj);
	*handle = (uintptr_t)t;
	return CUDA_SUCCESS;
}

static struct sim_texture *texture_find(enum sim_kind kind, unsigned long long handle)
{
	struct sim_texture *t = (struct sim_texture *)handle;

	return object_known(kind, t) ? t : NULL;
}

static CUresult texture_free(struct sim_texture *t)
{
	if (!t)
		return CUDA_ERROR_INVALID_VALUE;
	object_remove(&t->obj);
	free(t);
	return CUDA_SUCCESS;
}

static CUresult give_resource(CUDA_RESOURCE_DESC *resource, const struct sim_texture *t)
{
	if (!t || !resource)
		return CUDA_ERROR_INVALID_VALUE;
	*resource = t->resource;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuTexObjectCreate(CUtexObject *handle, const CUDA_RESOURCE_DESC *resource,
			     const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
	SIM_ENTER(cuTexObjectCreate, NEED_CONTEXT);
	if (!texture)
		return CUDA_ERROR_INVALID_VALUE;
	if (view || texture->filterMode != CU_TR_FILTER_MODE_POINT)
		return CUDA_ERROR_NOT_SUPPORTED;
	return texture_new(KIND_TEXTURE, resource, texture, handle);
}

SIM_EXPORT cuTexObjectDestroy(CUtexObject handle)
{
	SIM_ENTER(cuTexObjectDestroy, NEED_CONTEXT);
	return texture_free(texture_find(KIND_TEXTURE, handle));
}

SIM_EXPORT cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject handle)
{
	SIM_ENTER(cuTexObjectGetResourceDesc, NEED_CONTEXT);
	return give_resource(resource, texture_find(KIND_TEXTURE, handle));
}

SIM_EXPORT cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *texture, CUtexObject handle)
{
	const struct sim_texture *t;

	SIM_ENTER(cuTexObjectGetTextureDesc, NEED_CONTEXT);
	t = texture_find(KIND_TEXTURE, handle);
	if (!t || !texture)
		return CUDA_ERROR_INVALID_VALUE;
	*texture = t->texture;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuSurfObjectCreate(CUsurfObject *handle, const CUDA_RESOURCE_DESC *resource)
{
	SIM_ENTER(cuSurfObjectCreate, NEED_CONTEXT);
	return texture_new(KIND_SURFACE, resource, NULL, handle);
}

SIM_EXPORT cuSurfObjectDestroy(CUsurfObject handle)
{
	SIM_ENTER(cuSurfObjectDestroy, NEED_CONTEXT);
	return texture_free(texture_find(KIND_SURFACE, handle));
}

SIM_EXPORT cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject handle)
{
	SIM_ENTER(cuSurfObjectGetResourceDesc, NEED_CONTEXT);
	return give_resource(resource, texture_find(KIND_SURFACE, handle));
}
