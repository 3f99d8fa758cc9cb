/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the kernels of an image, without what their parameters hold (pointers.c). */
#include "kparams/internal.h"
#include "kparams/reader.h"

#include <errno.h>
#include <stdlib.h>

static int read_kernels(struct kp_image *image, struct kp_table *table, struct kp_error *err)
{
	const uint8_t *data = image->data;
	size_t size = image->info.size;
	uint8_t *unpacked = NULL;
	int ret;

	if (image->unsupported)
		return kp_fail(err, image->unsupported, image->info.offset,
			       "an unknown compression");
	if (image->info.kind != KP_PTX && image->info.kind != KP_CUBIN)
		return kp_fail(err, -ENOTSUP, image->info.offset, "an image of kind %d%s",
			       image->info.kind,
			       image->info.kind == KP_LTO_IR ? " (LTO-IR, for the linker)" : "");
	if (image->codec != KP_STORED) {
		ret = kp_unpack(image, &unpacked, &size, err);
		if (ret)
			return ret;
		data = unpacked;
	}
	if (image->info.kind == KP_PTX)
		ret = kp_ptx_read((const char *)data, size, table, err);
	else
		ret = kp_cubin_read(data, size, table, err);
	free(unpacked);
	return ret;
}

/* Read @image at the first call. The outcome is kept, a failure too. */
static int index_image(struct kp_image *image, struct kp_error *err)
{
	struct kp_error why = {0};

	if (!image->indexed) {
		image->code = read_kernels(image, &image->table, &why);
		if (!image->code)
			image->code = kp_table_sort(&image->table, &why);
		if (image->code) {
			kp_table_free(&image->table);
			image->error = malloc(sizeof(why));
			if (image->error)
				*image->error = why;
		}
		image->indexed = true;
	}
	if (image->code && err)
		*err = image->error ? *image->error : why;
	return image->code;
}

int kp_image_kernels(struct kp_image *image, size_t *n, struct kp_error *err)
{
	int ret = index_image(image, err);

	if (!ret)
		*n = image->table.n;
	return ret;
}
