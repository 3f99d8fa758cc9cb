/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes snapshots without a GPU, for the tests of what reads them:
 *
 *	mksnapshot write DIR SEED CHUNKS [CODEC] [incremental]...	a snapshot; each "incremental"
 *						is one more, with every tenth chunk changed
 *	mksnapshot seal FILE			put the right checksum under a manifest that was
 *						edited, or into an index
 *	mksnapshot fuzz DIR			an input of tests/fuzz/snapshot.c, on stdout
 *
 * The contents follow from SEED: of ten chunks one is zeros, two are equal, the rest differ. All
 * but the last can be compressed.
 */
#include "checkpoint/snapshot/manifest_write.h"
#include "checkpoint/snapshot/files/codec.h"
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/files/io.h"
#include "common/gpu/gpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE 0x600000000000UL

static int die(const char *what, const struct snapshot_error *error)
{
	fprintf(stderr, "mksnapshot: %s: %s\n", what, error->text);
	return 1;
}

static void fill(char *memory, size_t chunks, uint64_t seed)
{
	for (size_t i = 0; i < chunks; i++) {
		uint64_t *words = (uint64_t *)(memory + i * SNAPSHOT_CHUNK);
		uint64_t what = i % 10 == 2 ? i - 1 : i;

		for (size_t w = 0; w < SNAPSHOT_CHUNK / sizeof(*words); w++)
			words[w] = i % 10 ? (seed + what) * 0x9e3779b97f4a7c15UL + w : 0;
		/* (a generator by Marsaglia) */
		for (size_t w = 1; i == chunks - 1 && w < SNAPSHOT_CHUNK / sizeof(*words); w++) {
			words[w] = words[w - 1] ^ words[w - 1] << 13;
			words[w] ^= words[w] >> 7;
			words[w] ^= words[w] << 17;
		}
	}
}

/* Two regions, on two devices, and a run for each half of a region; no run for the first chunk. */
static int write_one(const char *path, const char *memory, size_t chunks, enum snapshot_codec codec,
		     bool incremental)
{
	size_t half = chunks / 2, all = chunks * SNAPSHOT_CHUNK, done = 0;
	struct snapshot_region regions[] = {
		{BASE, half * SNAPSHOT_CHUNK, 0},
		{BASE + (half + 5) * SNAPSHOT_CHUNK, (chunks - half) * SNAPSHOT_CHUNK, 1},
	};
	struct snapshot_run runs[] = {
		{BASE + SNAPSHOT_CHUNK, (half - 1) * SNAPSHOT_CHUNK, memory + SNAPSHOT_CHUNK, 0,
		 false},
		{regions[1].address, regions[1].size, memory + half * SNAPSHOT_CHUNK, 0, false},
	};
	struct snapshot_source source = {
		.regions = regions, .nregions = 2, .runs = runs, .nruns = 2};
	struct gpu devices[] = {
		{"GPU-00000000-0000-0000-0000-000000000001", "Simulated GPU", 64UL << 30, 9, 0},
		{"GPU-00000000-0000-0000-0000-000000000002", "Simulated GPU", 64UL << 30, 9, 0},
	};
	struct snapshot_context contexts[] = {{0, true}, {1, false}};
	struct snapshot_facts facts = {.cuda = 13000,
				       .devices = devices,
				       .ndevices = 2,
				       .gpus = 4,
				       .contexts = contexts,
				       .ncontexts = 2,
				       .phases = {{"copy", 1.5}, {"write", 20.123}},
				       .nphases = 2};
	struct snapshot_writer *writer;
	struct snapshot_error error;
	int ret = snapshot_begin(path, incremental, codec, all, &writer, &error);

	if (ret)
		return die(path, &error);
	ret = snapshot_write(writer, &source, &done, NULL, &error);
	if (!ret)
		ret = snapshot_finish(writer, &facts, false, &error);
	snapshot_end(writer);
	return ret ? die(path, &error) : 0;
}

static int write_all(int argc, char **argv)
{
	uint64_t seed = strtoull(argv[3], NULL, 0);
	size_t chunks = strtoul(argv[4], NULL, 0);
	char *memory = chunks < 2 ? NULL : aligned_alloc(SNAPSHOT_ALIGN, chunks * SNAPSHOT_CHUNK);
	enum snapshot_codec codec = SNAPSHOT_RAW;
	int ret, first = 5;

	if (!memory)
		return 2;
	fill(memory, chunks, seed);
	first += argc > 5 && snapshot_codec_parse(argv[5], &codec);
	ret = write_one(argv[2], memory, chunks, codec, false);
	for (int i = first; !ret && i < argc; i++) {
		for (size_t j = 3; j < chunks; j += 10)
			memset(memory + j * SNAPSHOT_CHUNK, i, 1000);
		ret = write_one(argv[2], memory, chunks, codec, !strcmp(argv[i], "incremental"));
	}
	free(memory);
	return ret;
}

/* An index begins with its magic; a manifest ends with its seal, of whatever hash. */
static int seal(const char *path)
{
	struct snapshot_header *header;
	struct snapshot_error error;
	char end[SNAPSHOT_SEAL_SIZE + 1];
	size_t size;
	char *data;

	if (snapshot_io_read_file(AT_FDCWD, path, SIZE_MAX, &data, &size, &error))
		return die(path, &error);
	header = (struct snapshot_header *)data;
	if (size >= sizeof(*header) &&
	    !memcmp(header->magic, SNAPSHOT_MAGIC, sizeof(header->magic))) {
		memset(&header->checksum, 0, sizeof(header->checksum));
		header->checksum = hash_bytes(data, size);
	} else if (size > SNAPSHOT_SEAL_SIZE) {
		snapshot_seal(data, size - SNAPSHOT_SEAL_SIZE, end);
		memcpy(data + size - SNAPSHOT_SEAL_SIZE, end, SNAPSHOT_SEAL_SIZE);
	}
	if (snapshot_io_write_file(AT_FDCWD, path, data, size, &error))
		return die(path, &error);
	/* The manifest has the hash of the whole index. */
	hash_text(hash_bytes(data, size), end);
	puts(end);
	free(data);
	return 0;
}

static int copy_out(int dir, const char *name, size_t less)
{
	struct snapshot_error error;
	size_t size;
	char *data;

	if (snapshot_io_read_file(dir, name, SIZE_MAX, &data, &size, &error))
		return die(name, &error);
	fwrite(data, 1, size - less, stdout);
	free(data);
	return 0;
}

/* The first index and data there are. Data that is not compressed is too much for a seed. */
static int fuzz(const char *path)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	int ret = copy_out(dir, SNAPSHOT_MANIFEST, SNAPSHOT_SEAL_SIZE);

	putchar(0);
	if (!ret)
		ret = copy_out(dir, "index-1", 0);
	if (!ret && !fstatat(dir, "data-1", &st, 0) && st.st_size < 1 << 16)
		ret = copy_out(dir, "data-1", 0);
	close(dir);
	return ret;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "fuzz"))
		return fuzz(argv[2]);
	if (argc >= 5 && !strcmp(argv[1], "write"))
		return write_all(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "seal"))
		return seal(argv[2]);
	fprintf(stderr,
		"usage: mksnapshot write DIR SEED CHUNKS [CODEC] [incremental]... | seal FILE\n");
	return 2;
}
