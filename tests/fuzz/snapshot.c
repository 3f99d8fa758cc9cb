/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of snapshots. An input is a manifest without its checksum, a zero, an index, and what
 * data-1 begins with. What holds the parts together is put right first, as nothing behind it would
 * be reached: the checksums, the identifier, and the sizes of data-1 and data-2.
 *
 * Seeds are made by "mksnapshot fuzz".
 */
#include "checkpoint/snapshot/files/io.h"
#include "tests/fuzz/fuzz.h"
#include "checkpoint/snapshot/open.h"
#include "checkpoint/snapshot/read.h"
#include "tools/command/tools.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DATA_FILES 2
#define DATA_MOST  (64UL << 20)
#define READ_MOST  8 /* chunks: each is 2 MiB to read */
#define HEX_DIGITS 32

const char fuzz_corpus[] = "tests/fuzz/corpus/snapshot";

static char directory[] = "/dev/shm/cudaw-fuzz-XXXXXX";

void complain(const char *fmt, ...)
{
	(void)fmt;
}

static void remove_directory(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command))
		perror(directory);
}

static int make_directory(void)
{
	if (!mkdtemp(directory))
		__builtin_trap();
	atexit(remove_directory);
	return open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Make the file what is at @data; of @size bytes, which may be more. */
static void put(int dir, const char *name, const void *data, size_t bytes, size_t size)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || ftruncate(fd, size))
		__builtin_trap();
	close(fd);
}

/* Put @digits in place of those of the first @key in @text. */
static void put_digits(char *text, const char *key, const char *digits)
{
	char *value = strstr(text, key);

	if (value && strlen(value) >= strlen(key) + HEX_DIGITS)
		memcpy(value + strlen(key), digits, HEX_DIGITS);
}

static void put_manifest(int dir, const uint8_t *data, size_t size, const uint8_t id[16],
			 struct hash128 index_hash)
{
	char *text = malloc(size + SNAPSHOT_SEAL_SIZE + 1), digits[HEX_DIGITS + 1];

	if (!text)
		return;
	memcpy(text, data, size);
	text[size] = '\0';
	for (int i = 0; i < HEX_DIGITS / 2; i++)
		snprintf(digits + 2 * i, 3, "%02x", id[i]);
	put_digits(text, "\"id\": \"", digits);
	hash_text(index_hash, digits);
	put_digits(text, "\"hash\": \"", digits);
	snapshot_seal(text, size, text + size);
	put(dir, SNAPSHOT_MANIFEST, text, size + SNAPSHOT_SEAL_SIZE, size + SNAPSHOT_SEAL_SIZE);
	free(text);
}

/* The index is as long as its header says, or as there is. Returns that. */
static size_t put_index(int dir, const uint8_t *data, size_t size, uint8_t id[16],
			struct hash128 *hash)
{
	struct snapshot_header header = {0};
	size_t chunks = size / sizeof(struct snapshot_chunk);
	char *copy;

	memcpy(&header, data, size < sizeof(header) ? size : sizeof(header));
	if (chunks && header.nchunks < chunks)
		size = sizeof(header) + header.nchunks * sizeof(struct snapshot_chunk);
	copy = malloc(size + sizeof(header));
	if (!copy)
		__builtin_trap();
	memcpy(copy, data, size);
	if (size >= sizeof(header)) {
		memset(&header.checksum, 0, sizeof(header.checksum));
		memcpy(copy, &header, sizeof(header));
		header.checksum = hash_bytes(copy, size);
		memcpy(copy, &header, sizeof(header));
	}
	memcpy(id, header.id, sizeof(header.id));
	*hash = hash_bytes(copy, size);
	put(dir, "index-1", copy, size, size);
	free(copy);
	return size;
}

static void put_data(int dir, const struct snapshot_manifest *m, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < m->ndata && m->data[i].number <= DATA_FILES; i++) {
		char name[SNAPSHOT_NAME_SIZE];
		size_t most = m->data[i].size < DATA_MOST ? m->data[i].size : DATA_MOST;
		size_t bytes = m->data[i].number != 1 ? 0 : size < most ? size : most;

		snapshot_name(SNAPSHOT_DATA, m->data[i].number, name);
		put(dir, name, data, bytes, most);
	}
}

/* A snapshot that was opened has every chunk of its regions, inside of its files. */
static void check(const struct snapshot_manifest *m, const struct snapshot_index *index)
{
	size_t chunks = 0;

	for (size_t i = 0; i < m->nregions; i++) {
		chunks += m->regions[i].size / SNAPSHOT_CHUNK;
		if ((size_t)m->regions[i].device >= m->ndevices)
			__builtin_trap();
	}
	if (chunks != index->nchunks || index->norder > index->nchunks)
		__builtin_trap();
	for (size_t i = 0; i < index->norder; i++) {
		const struct snapshot_chunk *c = &index->chunks[index->order[i]];

		if (!snapshot_manifest_names(m, SNAPSHOT_DATA, c->file) ||
		    c->stored > SNAPSHOT_CHUNK)
			__builtin_trap();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int dir = -1;
	const uint8_t *end = size ? memchr(data, 0, size) : NULL;
	size_t text_size, left, index_size;
	struct snapshot_manifest manifest;
	struct snapshot_index index;
	struct snapshot_error error;
	struct hash128 hash;
	uint8_t id[16];
	char text[64];

	if (!end)
		return 0;
	if (dir < 0)
		dir = make_directory();
	text_size = end++ - data;
	left = size - text_size - 1;
	index_size = put_index(dir, end, left, id, &hash);
	put_manifest(dir, data, text_size, id, hash);
	if (snapshot_manifest_load(dir, SNAPSHOT_MANIFEST, &manifest, &error))
		return 0;
	snapshot_manifest_text(json_object_get(manifest.root, "process"), "cwd", text,
			       sizeof(text));
	put_data(dir, &manifest, end + index_size, left - index_size);
	if (!snapshot_open_index(dir, &manifest, &index, &error)) {
		check(&manifest, &index);
		if (index.norder <= READ_MOST)
			snapshot_read(&(struct snapshot_read){.dir = dir, .index = &index}, &error);
		snapshot_index_free(&index);
	}
	snapshot_manifest_free(&manifest);
	return 0;
}
