/* SPDX-License-Identifier: Apache-2.0 */
#include "kparams/internal.h"

#include "kparams/reader.h"

#include <errno.h>
#include <stdlib.h>

size_t kp_fatbin_nimages(const struct kp_fatbin *fatbin)
{
	return fatbin->nimages;
}

struct kp_image *kp_fatbin_image(struct kp_fatbin *fatbin, size_t i)
{
	return &fatbin->images[i];
}

void kp_image_info(const struct kp_image *image, struct kp_image_info *info)
{
	*info = image->info;
}

const struct kp_kernel *kp_image_kernel(struct kp_image *image, size_t i)
{
	struct kp_kernel *kernel = image->table.kernels[i];

	if (!kernel->classified)
		kp_classify(image, kernel);
	return kernel;
}

int kp_image_find(struct kp_image *image, const char *name, const struct kp_kernel **out,
		  struct kp_error *err)
{
	struct kp_kernel *kernel;
	size_t n;
	int ret = kp_image_kernels(image, &n, err);

	if (ret)
		return ret;
	kernel = kp_table_find(&image->table, name);
	if (!kernel)
		return kp_fail(err, -ENOENT, image->info.offset, "no kernel %s", name);
	if (!kernel->classified)
		kp_classify(image, kernel);
	*out = kernel;
	return 0;
}

/*
 * How well @image fits a device of @arch: 0 if it does not. A cubin runs on its own major version,
 * from its own minor version up; with a suffix 'a' it runs only on its own architecture. PTX comes
 * after every cubin. An image that does not fit may still know the kernel's sizes, so it is not
 * excluded; it comes last.
 */
static uint32_t fitness(const struct kp_image *image, uint32_t arch)
{
	const struct kp_image_info *info = &image->info;
	bool older = info->arch <= arch;
	bool exact = info->arch == arch;

	if (info->kind == KP_CUBIN && older && info->arch / 10 == arch / 10 &&
	    (exact || info->suffix != 'a'))
		return 3000 + info->arch;
	if (info->kind == KP_PTX && older && (exact || info->suffix != 'a'))
		return 2000 + info->arch;
	if (info->kind == KP_CUBIN)
		return 1;
	return 0;
}

static int compare_fitness(const void *a, const void *b, void *arch)
{
	const struct kp_image *x = *(struct kp_image *const *)a, *y = *(struct kp_image *const *)b;
	uint32_t fit_x = fitness(x, *(uint32_t *)arch), fit_y = fitness(y, *(uint32_t *)arch);

	if (fit_x != fit_y)
		return fit_x > fit_y ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* List the images, the best fit first; of equal fits the first in the fatbin. */
static int rank(struct kp_fatbin *fatbin, uint32_t arch)
{
	size_t n = fatbin->nimages;

	if (fatbin->ranked && fatbin->ranked_arch == arch)
		return 0;
	if (!fatbin->ranked)
		fatbin->ranked = calloc(n, sizeof(*fatbin->ranked));
	if (!fatbin->ranked)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		fatbin->ranked[i] = &fatbin->images[i];
	qsort_r(fatbin->ranked, n, sizeof(*fatbin->ranked), compare_fitness, &arch);
	fatbin->ranked_arch = arch;
	return 0;
}

int kp_fatbin_find(struct kp_fatbin *fatbin, uint32_t arch, const char *name,
		   const struct kp_kernel **kernel, struct kp_image **image, struct kp_error *err)
{
	struct kp_error first = {0};
	int code = -ENOENT;

	if (!fatbin->nimages)
		return kp_fail(err, -ENOENT, 0, "no image");
	if (rank(fatbin, arch))
		return kp_fail(err, -ENOMEM, 0, "no memory");
	for (size_t i = 0; i < fatbin->nimages; i++) {
		struct kp_image *candidate = fatbin->ranked[i];
		struct kp_error why = {0};
		int ret = kp_image_find(candidate, name, kernel, &why);

		if (!ret) {
			if (image)
				*image = candidate;
			return 0;
		}
		/* An image that cannot be read says more than one without the kernel. */
		if (!first.text[0] || (code == -ENOENT && ret != -ENOENT)) {
			first = why;
			code = ret;
		}
	}
	if (err)
		*err = first;
	return code;
}
