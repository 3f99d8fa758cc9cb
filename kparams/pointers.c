/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out what a parameter holds. Three sources tell it, in this order, for each parameter of the
 * size of a pointer:
 *
 *  - The image's own records give the state space of a pointer, if the compiler wrote it down: nvcc
 *    13 for compute_100 and later, Triton and LLVM 20 for all.
 *  - The mangled name gives the type, for all architectures. But the names of extern "C" kernels
 *    have no types, a dependent type looks like a struct, and a struct's members are unknown.
 *  - Another image of the same fatbin, for an architecture whose records have spaces.
 *
 * Function pointers have a state space too; only the name tells them apart. A missing space proves
 * nothing: older compilers write none. If a name has types, an image has little to add: names know
 * every one of the 245,000 pointers in the records with spaces of NVIDIA's libraries and PyTorch.
 */
#include "kparams/internal.h"

#include <stdlib.h>
#include <string.h>

#define POINTER_SIZE 8
#define NUMBER_MOST  16

/* The host cannot give a kernel pointers into local and shared memory. */
static bool is_host_space(uint8_t space)
{
	return space >= 3 && space <= 5;
}

static void set(struct kp_param *param, enum kp_holds holds, enum kp_source source)
{
	param->holds = holds;
	param->source = source;
}

const char *kp_mangled_part(const char *name)
{
	const char *mangled;

	if (strncmp(name, "__nv_static_", 12))
		return name;
	mangled = strstr(name, "__Z");
	return mangled ? mangled + 1 : name;
}

/* True if another image may know that some remaining parameter is a pointer. */
static bool classify_alone(struct kp_kernel *kernel, const uint8_t *types)
{
	bool open = false;

	for (uint32_t i = 0; i < kernel->nparams; i++) {
		struct kp_param *param = &kernel->params[i];

		if (param->size < POINTER_SIZE)
			set(param, KP_NO_POINTER, KP_FROM_SIZE);
		else if (types && types[i] == KP_CODE)
			set(param, KP_CODE, KP_FROM_NAME);
		else if (is_host_space(param->space))
			set(param, KP_POINTER, KP_FROM_IMAGE);
		else if (types && types[i] != KP_ANYTHING)
			set(param, types[i], KP_FROM_NAME);
		else
			open |= param->size == POINTER_SIZE;
	}
	return open;
}

/* Take pointers from a @sibling of the same layout. True if it has any. */
static bool classify_by(struct kp_kernel *kernel, const struct kp_kernel *sibling)
{
	bool any = false;

	if (sibling->nparams != kernel->nparams)
		return false;
	for (uint32_t i = 0; i < kernel->nparams; i++) {
		struct kp_param *param = &kernel->params[i];

		if (param->size != sibling->params[i].size ||
		    !is_host_space(sibling->params[i].space))
			continue;
		any = true;
		if (param->size == POINTER_SIZE && param->source == KP_FROM_NOBODY)
			set(param, KP_POINTER, KP_FROM_SIBLING);
	}
	return any;
}

/* The @i-th image with kernels and spaces; NULL behind the last. */
static struct kp_image *get_sibling(struct kp_fatbin *fatbin, size_t i)
{
	while (i == fatbin->nsiblings && i < KP_MAX_SIBLINGS && fatbin->nseen < fatbin->nimages) {
		struct kp_image *image = &fatbin->images[fatbin->nseen++];
		size_t n;

		if (image->info.arch >= KP_FIRST_ARCH_WITH_SPACES &&
		    !kp_image_kernels(image, &n, NULL) && n)
			fatbin->siblings[fatbin->nsiblings++] = image;
	}
	return i < fatbin->nsiblings ? fatbin->siblings[i] : NULL;
}

static void ask_siblings(struct kp_fatbin *fatbin, struct kp_kernel *kernel)
{
	struct kp_kernel *sibling;
	struct kp_image *image;

	for (size_t i = 0; (image = get_sibling(fatbin, i)); i++) {
		sibling = kp_table_find(&image->table, kernel->name);
		if (sibling && classify_by(kernel, sibling))
			return;
	}
}

/* False if the sizes do not match: the types were misread, or are another function's. */
static bool sizes_fit(const struct kp_kernel *kernel, const uint8_t *types)
{
	for (uint32_t i = 0; i < kernel->nparams; i++) {
		uint32_t size = kernel->params[i].size;

		if (types[i] == KP_NO_POINTER ? size > NUMBER_MOST
					      : types[i] != KP_ANYTHING && size != POINTER_SIZE)
			return false;
	}
	return true;
}

void kp_classify(struct kp_image *image, struct kp_kernel *kernel)
{
	uint8_t *types = kernel->nparams ? malloc(kernel->nparams) : NULL;
	bool named = types &&
		     kp_mangled_params(kp_mangled_part(kernel->name), types, kernel->nparams) ==
			     (int)kernel->nparams &&
		     sizes_fit(kernel, types);

	bool open = classify_alone(kernel, named ? types : NULL);

	if (open && image && image->info.arch < KP_FIRST_ARCH_WITH_SPACES)
		ask_siblings(image->fatbin, kernel);
	kernel->untyped = open && !named;
	free(types);
	kernel->classified = true;
}

struct kp_kernel *kp_kernel_new(const char *name, const struct kp_param *params, uint32_t nparams)
{
	struct kp_kernel *kernel = kp_kernel_make(name, strlen(name), params, nparams);

	if (kernel)
		kp_classify(NULL, kernel);
	return kernel;
}
