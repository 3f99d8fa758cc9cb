/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers and wrappers, as the fatbinary of CUDA 10 to 13.0 writes them. All fields are
 * little-endian.
 *
 * A container is a header of 16 bytes and then entries, one behind the other:
 *
 *	0x00 u32 magic 0xba55ed50, 0x04 u16 version 1, 0x06 u16 header size, 0x08 u64 size of the
 *	entries
 *
 * An entry is a header and then the image, padded to 8 bytes:
 *
 *	0x00 u16 kind, u16 version, u32 header size (0x40, or more with options)
 *	0x08 u64 size of the image with its padding
 *	0x10 u32 size of the image when compressed, u32 offset of options
 *	0x18 u16 minor, u16 major, u32 architecture
 *	0x20 u32 offset and u32 length of an identifier
 *	0x28 u64 flags, 0x30 u64 (reserved), 0x38 u64 size when decompressed
 */
#include "kparams/internal.h"

#include "kparams/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CONTAINER_MAGIC   0xba55ed50u
#define CONTAINER_VERSION 1
#define CONTAINER_HEADER  16
#define ENTRY_HEADER      64

#define WRAPPER_MAGIC 0x466243b1

#define FLAG_LZ4         0x2000
#define FLAG_ZSTD        0x8000
#define FLAG_CODECS      0xf000 /* the two others are unknown */
#define FLAG_ARCH_SUFFIX 0x100000
#define FLAG_FAMILY      0x200000

struct wrapper {
	int32_t magic;
	int32_t version;
	const void *data;
	const void *const *prelinked; /* version 2 */
};

struct entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t padded_size;
	uint32_t compressed_size, options_offset;
	uint16_t minor, major;
	uint32_t arch;
	uint32_t name_offset, name_size;
	uint64_t flags, reserved, raw_size;
};
_Static_assert(sizeof(struct entry) == ENTRY_HEADER, "an entry is read as it lies");

struct container {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size;
};
_Static_assert(sizeof(struct container) == CONTAINER_HEADER, "a container is read as it lies");

static int add_image(struct kp_fatbin *fatbin, const struct kp_image *image)
{
	if (fatbin->nimages == fatbin->max_images) {
		size_t max = fatbin->max_images ? 2 * fatbin->max_images : 4;
		struct kp_image *grown = reallocarray(fatbin->images, max, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		fatbin->images = grown;
		fatbin->max_images = max;
	}
	fatbin->images[fatbin->nimages] = *image;
	fatbin->images[fatbin->nimages].fatbin = fatbin;
	fatbin->nimages++;
	return 0;
}

/* Describe the image at @image->data by its @entry. */
static int describe_image(struct kp_image *image, const struct entry *entry, struct kp_error *err)
{
	uint64_t at = image->info.offset;

	image->info.kind = entry->kind;
	image->info.arch = entry->arch;
	image->info.size = entry->padded_size;
	if (entry->flags & FLAG_ARCH_SUFFIX)
		image->info.suffix = 'a';
	else if (entry->flags & FLAG_FAMILY)
		image->info.suffix = 'f';
	switch (entry->flags & FLAG_CODECS) {
	case 0:
		return 0;
	case FLAG_LZ4:
		image->codec = KP_LZ4;
		break;
	case FLAG_ZSTD:
		image->codec = KP_ZSTD;
		break;
	default:
		image->unsupported = -ENOTSUP;
		return 0;
	}
	if (entry->compressed_size > entry->padded_size)
		return kp_fail(err, -EBADMSG, at, "%u compressed bytes in an entry of %" PRIu64,
			       entry->compressed_size, entry->padded_size);
	image->info.size = entry->compressed_size;
	image->raw_size = entry->raw_size;
	return 0;
}

/* Read the entry at @r, and move on to the next. */
static int add_entry(struct kp_fatbin *fatbin, struct kp_reader *r, struct kp_error *err)
{
	struct kp_image image = {0};
	size_t at = r->pos;
	struct entry entry;
	int ret;

	kp_read(r, &entry, sizeof(entry));
	if (r->failed)
		return kp_fail(err, -EBADMSG, at, "an entry's header passes the container's end");
	if (entry.header_size < ENTRY_HEADER)
		return kp_fail(err, -EBADMSG, at,
			       "an entry's header of %u bytes, expected %u or more",
			       entry.header_size, ENTRY_HEADER);
	kp_skip(r, entry.header_size - ENTRY_HEADER);
	image.info.offset = r->pos;
	image.data = r->data + r->pos;
	kp_skip(r, entry.padded_size);
	if (r->failed)
		return kp_fail(err, -EBADMSG, at,
			       "an entry of %u and 0x%" PRIx64 " bytes passes the container's end",
			       entry.header_size, entry.padded_size);
	ret = describe_image(&image, &entry, err);
	if (ret)
		return ret;
	ret = add_image(fatbin, &image);
	return ret ? kp_fail(err, ret, at, "no memory") : 0;
}

static int read_container(struct kp_reader *r, struct container *container, struct kp_error *err)
{
	size_t at = r->pos;

	kp_read(r, container, sizeof(*container));
	if (r->failed || container->magic != CONTAINER_MAGIC)
		return kp_fail(err, -EBADMSG, at, "no header of a container");
	if (container->version != CONTAINER_VERSION)
		return kp_fail(err, -ENOTSUP, at, "a container of unknown version %u",
			       container->version);
	if (container->header_size < CONTAINER_HEADER)
		return kp_fail(err, -EBADMSG, at,
			       "a container's header of %u bytes, expected %u or more",
			       container->header_size, CONTAINER_HEADER);
	kp_skip(r, container->header_size - CONTAINER_HEADER);
	if (r->failed || container->size > kp_left(r))
		return kp_fail(err, -EBADMSG, at,
			       "a container of 0x%" PRIx64 " bytes, of which the input has 0x%zx",
			       container->size, kp_left(r));
	return 0;
}

static int add_container(struct kp_fatbin *fatbin, const void *data, size_t size,
			 struct kp_error *err)
{
	struct kp_reader r = kp_reader(data, size);
	struct container container;
	int ret = read_container(&r, &container, err);

	if (ret)
		return ret;
	r.end = r.pos + container.size;
	while (kp_left(&r)) {
		ret = add_entry(fatbin, &r, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* Add a cubin or a PTX text that lies in no container. */
static int add_lone_image(struct kp_fatbin *fatbin, const void *data, size_t size,
			  struct kp_error *err)
{
	struct kp_image image = {.data = data};
	int ret;

	if (kp_is_elf(data, size))
		ret = kp_cubin_info(data, size, &image.info, err);
	else
		ret = kp_ptx_info(data, size, &image.info, err);
	if (ret)
		return ret;
	image.info.size = size;
	ret = add_image(fatbin, &image);
	return ret ? kp_fail(err, ret, 0, "no memory") : 0;
}

int kp_fatbin_add(struct kp_fatbin *fatbin, const void *data, size_t size, struct kp_error *err)
{
	if (kp_is_container(data, size))
		return add_container(fatbin, data, size, err);
	return add_lone_image(fatbin, data, size, err);
}

int kp_fatbin_open(const void *data, size_t size, struct kp_fatbin **out, struct kp_error *err)
{
	struct kp_fatbin *fatbin = calloc(1, sizeof(*fatbin));
	int ret;

	if (!fatbin)
		return kp_fail(err, -ENOMEM, 0, "no memory");
	ret = kp_fatbin_add(fatbin, data, size, err);
	if (ret) {
		kp_fatbin_close(fatbin);
		return ret;
	}
	*out = fatbin;
	return 0;
}

bool kp_is_wrapper(const void *data)
{
	const int32_t magic = WRAPPER_MAGIC;

	return !memcmp(data, &magic, sizeof(magic));
}

const void *kp_wrapper_container(const void *wrapper, size_t i)
{
	struct wrapper w;

	memcpy(&w, wrapper, sizeof(w));
	if (w.version < 1 || w.version > 2)
		return NULL;
	if (!i)
		return w.data;
	/* A device-linked program of only PTX has an empty container, and its kernels in these. */
	return w.version == 2 && w.prelinked ? w.prelinked[i - 1] : NULL;
}

void kp_fatbin_close(struct kp_fatbin *fatbin)
{
	if (!fatbin)
		return;
	for (size_t i = 0; i < fatbin->nimages; i++) {
		kp_table_free(&fatbin->images[i].table);
		free(fatbin->images[i].error);
	}
	free(fatbin->images);
	free(fatbin->ranked);
	free(fatbin);
}

bool kp_container_next(const void *data, size_t size, size_t *offset, size_t *length)
{
	const uint32_t magic = CONTAINER_MAGIC;
	const uint8_t *bytes = data, *found;
	struct container container;

	for (size_t at = *offset; at < size; at++) {
		struct kp_reader r = kp_reader(data, size);

		found = memmem(bytes + at, size - at, &magic, sizeof(magic));
		if (!found)
			break;
		at = found - bytes;
		r.pos = at;
		/* Code that searches for containers contains the magic too. */
		if (at % 2 || read_container(&r, &container, NULL))
			continue;
		*offset = at;
		*length = container.header_size + container.size;
		return true;
	}
	return false;
}
