/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/index.h"
#include "checkpoint/snapshot/files/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OFFSET_MAX (1UL << 48)

static bool is_newer(const struct snapshot_header *header)
{
	return header->version > SNAPSHOT_PLAIN;
}

static int check_header(const struct snapshot_header *header, size_t size, const char *name,
			struct snapshot_error *error)
{
	if (memcmp(header->magic, SNAPSHOT_MAGIC, sizeof(header->magic)))
		return snapshot_fail(error, -EBADMSG, "%s: it is not an index of a cudaw snapshot",
				     name);
	if (is_newer(header))
		return snapshot_fail(error, -ENOTSUP,
				     "%s: version %u is newer than this cudaw, which knows %d",
				     name, header->version, SNAPSHOT_PLAIN);
	if (header->version != SNAPSHOT_PLAIN || header->chunk_size != SNAPSHOT_CHUNK ||
	    header->reserved)
		return snapshot_fail(error, -EBADMSG,
				     "%s: expected version %d with chunks of %lu bytes, found "
				     "version %u with %u",
				     name, SNAPSHOT_PLAIN, SNAPSHOT_CHUNK, header->version,
				     header->chunk_size);
	if (header->nchunks != (size - sizeof(*header)) / sizeof(struct snapshot_chunk) ||
	    size % sizeof(struct snapshot_chunk))
		return snapshot_fail(error, -EBADMSG,
				     "%s: expected a file for %" PRIu64 " chunks, found %zu bytes",
				     name, header->nchunks, size);
	return 0;
}

static int check_checksum(char *data, size_t size, const char *name, struct snapshot_error *error)
{
	struct snapshot_header *header = (struct snapshot_header *)data;
	struct hash128 want = header->checksum, have;
	char expected[HASH_TEXT_SIZE], found[HASH_TEXT_SIZE];

	memset(&header->checksum, 0, sizeof(header->checksum));
	have = hash_bytes(data, size);
	header->checksum = want;
	if (hash_equal(want, have))
		return 0;
	hash_text(want, expected);
	hash_text(have, found);
	return snapshot_fail(error, -EBADMSG, "%s: damaged: expected checksum %s, found %s", name,
			     expected, found);
}

/* The fault of a single chunk; NULL if there is none. */
static const char *chunk_fault(const struct snapshot_chunk *c)
{
	if (c->address % SNAPSHOT_CHUNK || c->address + SNAPSHOT_CHUNK < c->address)
		return "its address is not a multiple of 2 MiB";
	if (c->codec == SNAPSHOT_ZERO)
		return c->file || c->offset || c->stored ? "a chunk of zeros is stored somewhere"
							 : NULL;
	if (c->codec > SNAPSHOT_ZSTD)
		return "its codec is not known";
	if (c->codec == SNAPSHOT_RAW && c->stored != SNAPSHOT_CHUNK)
		return "its stored size is not 2 MiB";
	if (!c->stored || (c->codec != SNAPSHOT_RAW && c->stored > SNAPSHOT_PACKED_MAX))
		return "its compressed size is not from 1 to 2 MiB - 4096";
	if (c->file > SNAPSHOT_NUMBER_MAX)
		return "its file's number is too large";
	if (c->offset % SNAPSHOT_ALIGN || c->offset > OFFSET_MAX)
		return "its offset is not a multiple of 4096 below 2^48";
	return c->reserved ? "its reserved field is not 0" : NULL;
}

static int compare_places(const void *a, const void *b, void *arg)
{
	const struct snapshot_chunk *chunks = arg;
	const struct snapshot_chunk *x = &chunks[*(const uint32_t *)a];
	const struct snapshot_chunk *y = &chunks[*(const uint32_t *)b];

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x < y ? -1 : 1;
}

/*
 * For two chunks in the order of their places. True if they have the same place and contents, or no
 * byte in common.
 */
static bool places_agree(const struct snapshot_chunk *a, const struct snapshot_chunk *b)
{
	if (a->file != b->file)
		return true;
	if (a->offset == b->offset)
		return a->stored == b->stored && a->codec == b->codec &&
		       hash_equal(a->hash, b->hash);
	return a->offset + snapshot_padded(a->stored) <= b->offset;
}

static int check_chunks(struct snapshot_index *index, const char *name,
			struct snapshot_error *error)
{
	const struct snapshot_chunk *chunks = index->chunks;

	index->order = malloc((index->nchunks + 1) * sizeof(*index->order));
	index->places = malloc((index->nchunks + 1) * sizeof(*index->places));
	if (!index->order || !index->places)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	for (size_t i = 0; i < index->nchunks; i++) {
		const char *fault = chunk_fault(&chunks[i]);

		if (!fault && i && chunks[i].address < chunks[i - 1].address + SNAPSHOT_CHUNK)
			fault = "its address is not above that of the one before it";
		if (fault)
			return snapshot_fail(error, -EBADMSG, "%s: chunk %zu at 0x%" PRIx64 ": %s",
					     name, i, chunks[i].address, fault);
		if (chunks[i].codec != SNAPSHOT_ZERO)
			index->order[index->norder++] = i;
	}
	qsort_r(index->order, index->norder, sizeof(*index->order), compare_places, index->chunks);
	for (size_t i = 0; i < index->norder; i++) {
		const struct snapshot_chunk *a = &chunks[index->order[i ? i - 1 : 0]];
		const struct snapshot_chunk *b = &chunks[index->order[i]];

		if (!i || a->file != b->file || a->offset != b->offset)
			index->places[index->nplaces++] = i;
		if (i && !places_agree(a, b))
			return snapshot_fail(error, -EBADMSG,
					     "%s: the chunks at 0x%" PRIx64 " and 0x%" PRIx64
					     " overlap in data-%u at %" PRIu64 " and %" PRIu64,
					     name, a->address, b->address, a->file, a->offset,
					     b->offset);
	}
	index->places[index->nplaces] = index->norder;
	return 0;
}

int snapshot_index_load(int dir, uint32_t number, struct snapshot_index *index,
			struct snapshot_error *error)
{
	struct snapshot_index loaded = {0};
	char name[SNAPSHOT_NAME_SIZE], *data;
	size_t size;
	int ret;

	snapshot_name(SNAPSHOT_INDEX, number, name);
	ret = snapshot_io_read_file(
		dir, name, sizeof(loaded.header) + SNAPSHOT_CHUNKS_MAX * sizeof(*loaded.chunks),
		&data, &size, error);
	if (ret)
		return ret;
	if (size < sizeof(loaded.header)) {
		ret = snapshot_fail(error, -EBADMSG, "%s: expected at least %zu bytes, found %zu",
				    name, sizeof(loaded.header), size);
		goto out;
	}
	loaded.file_hash = hash_bytes(data, size);
	memcpy(&loaded.header, data, sizeof(loaded.header));
	/*
	 * A newer version has its checksum in the same place. If it does not match, the version
	 * itself is damaged.
	 */
	if (!memcmp(loaded.header.magic, SNAPSHOT_MAGIC, sizeof(loaded.header.magic)) &&
	    is_newer(&loaded.header))
		ret = check_checksum(data, size, name, error);
	if (!ret)
		ret = check_header(&loaded.header, size, name, error);
	if (!ret)
		ret = check_checksum(data, size, name, error);
	if (ret)
		goto out;
	loaded.nchunks = loaded.header.nchunks;
	memmove(data, data + sizeof(loaded.header), size - sizeof(loaded.header));
	loaded.chunks = (struct snapshot_chunk *)data;
	ret = check_chunks(&loaded, name, error);
out:
	if (ret) {
		free(data);
		free(loaded.order);
		free(loaded.places);
	} else {
		*index = loaded;
	}
	return ret;
}

void snapshot_index_free(struct snapshot_index *index)
{
	free(index->chunks);
	free(index->order);
	free(index->places);
	memset(index, 0, sizeof(*index));
}
