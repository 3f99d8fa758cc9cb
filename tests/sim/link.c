/* SPDX-License-Identifier: Apache-2.0 */
/* The linker: what it makes of PTX texts is one text. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_link {
	struct sim_object obj;
	char *text;
	size_t size; /* without the 0 at the end */
};

static struct sim_link *link_find(CUlinkState state)
{
	return object_known(KIND_LINK, state) ? (struct sim_link *)state : NULL;
}

SIM_EXPORT cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values,
			   CUlinkState *state)
{
	struct sim_link *l;

	SIM_ENTER(cuLinkCreate_v2, NEED_CONTEXT);
	(void)count, (void)options, (void)values;
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object_add(KIND_LINK, &l->obj);
	*state = (CUlinkState)l;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
			    const char *name, unsigned int count, CUjit_option *options,
			    void **values)
{
	struct sim_link *l;
	char *text;

	SIM_ENTER(cuLinkAddData_v2, NEED_CONTEXT);
	(void)name, (void)count, (void)options, (void)values;
	l = link_find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (type != CU_JIT_INPUT_PTX)
		return CUDA_ERROR_NOT_SUPPORTED;
	size = strnlen(data, size);
	text = realloc(l->text, l->size + size + 1);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(text + l->size, data, size);
	l->text = text;
	l->size += size;
	text[l->size] = '\0';
	return CUDA_SUCCESS;
}

SIM_EXPORT cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
	struct sim_link *l;

	SIM_ENTER(cuLinkComplete, NEED_CONTEXT);
	l = link_find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!l->text)
		return CUDA_ERROR_INVALID_VALUE;
	*image = l->text;
	*size = l->size;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuLinkDestroy(CUlinkState state)
{
	struct sim_link *l;

	SIM_ENTER(cuLinkDestroy, NEED_CONTEXT);
	l = link_find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	object_remove(&l->obj);
	free(l->text);
	free(l);
	return CUDA_SUCCESS;
}
