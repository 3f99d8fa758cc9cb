/* SPDX-License-Identifier: Apache-2.0 */
#include "kparams/internal.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static int unpack_lz4(const struct kp_image *image, uint8_t *out, struct kp_error *err)
{
	int n = LZ4_decompress_safe((const char *)image->data, (char *)out, image->info.size,
				    image->raw_size);

	if (n < 0 || (uint64_t)n != image->raw_size)
		return kp_fail(err, -EBADMSG, image->info.offset,
			       "LZ4 gives %d bytes, expected %zu as in the header", n,
			       (size_t)image->raw_size);
	return 0;
}

static int unpack_zstd(const struct kp_image *image, uint8_t *out, struct kp_error *err)
{
	size_t n = ZSTD_decompress(out, image->raw_size, image->data, image->info.size);

	if (ZSTD_isError(n))
		return kp_fail(err, -EBADMSG, image->info.offset, "ZSTD: %s", ZSTD_getErrorName(n));
	if (n != image->raw_size)
		return kp_fail(err, -EBADMSG, image->info.offset,
			       "ZSTD gives %zu bytes, expected %zu as in the header", n,
			       (size_t)image->raw_size);
	return 0;
}

int kp_unpack(const struct kp_image *image, uint8_t **out, size_t *size, struct kp_error *err)
{
	size_t n = image->raw_size;
	uint8_t *buf;
	int ret = 0;

	if (n > KP_MAX_IMAGE)
		return kp_fail(err, -ENOTSUP, image->info.offset, "an image of %zu bytes", n);
	if (!n || !image->info.size)
		return kp_fail(err, -EBADMSG, image->info.offset, "an empty image");
	buf = malloc(n);
	if (!buf)
		return kp_fail(err, -ENOMEM, image->info.offset, "no memory for %zu bytes", n);
	if (image->codec == KP_LZ4)
		ret = unpack_lz4(image, buf, err);
	else
		ret = unpack_zstd(image, buf, err);
	if (ret) {
		free(buf);
		return ret;
	}
	*out = buf;
	*size = n;
	return 0;
}
