/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find/find_cache.h"
#include "common/find/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE_LIMIT (64UL << 20)

/*
 * The cache, as ldconfig of glibc 2.2 and later writes it. String offsets count from the header. A
 * file of the old format ("ld.so-1.7.0", 12-byte entries) may precede it, for loaders that read
 * nothing else; the new one then starts at the next multiple of 8.
 */
struct cache_header {
	char magic[20];
	uint32_t count;
	uint32_t strings_size;
	uint8_t flags; /* byte order in the low bits: 0 unknown, 2 little */
	uint8_t padding[3];
	uint32_t extensions;
	uint32_t unused[3];
};
_Static_assert(sizeof(struct cache_header) == 48, "as in the file");

struct cache_entry {
	int32_t flags;
	uint32_t key;   /* offset of the soname */
	uint32_t value; /* offset of the path */
	uint32_t os_version;
	uint64_t hwcap;
};
_Static_assert(sizeof(struct cache_entry) == 24, "as in the file");

#define CACHE_MAGIC      "glibc-ld.so.cache1.1"
#define CACHE_OLD_MAGIC  "ld.so-1.7.0"
#define CACHE_OLD_HEADER 16
#define CACHE_OLD_ENTRY  12

/* The string at @offset of @data, or NULL if it does not end inside. */
static const char *cache_string(const char *data, size_t size, uint32_t offset)
{
	if (offset >= size || !memchr(data + offset, '\0', size - offset))
		return NULL;
	return data + offset;
}

/* Step over a cache of the old format. */
static void skip_old_cache(const char **data, size_t *size)
{
	uint32_t count;
	size_t skip;

	if (*size < CACHE_OLD_HEADER ||
	    memcmp(*data, CACHE_OLD_MAGIC, sizeof(CACHE_OLD_MAGIC) - 1) != 0)
		return;
	memcpy(&count, *data + 12, sizeof(count));
	skip = (CACHE_OLD_HEADER + (size_t)count * CACHE_OLD_ENTRY + 7) & ~(size_t)7;
	skip = skip < *size ? skip : *size;
	*data += skip;
	*size -= skip;
}

int find_cache_lookup(const void *data, size_t size, const char *soname,
		      void (*visit)(const char *path, void *arg), void *arg)
{
	const char *bytes = data, *key, *path;
	struct cache_header header;
	struct cache_entry entry;

	skip_old_cache(&bytes, &size);
	if (size < sizeof(header))
		return -EBADMSG;
	memcpy(&header, bytes, sizeof(header));
	if (memcmp(header.magic, CACHE_MAGIC, sizeof(header.magic)) != 0 ||
	    ((header.flags & 3) != 0 && (header.flags & 3) != 2) ||
	    header.count > (size - sizeof(header)) / sizeof(entry))
		return -EBADMSG;
	for (uint32_t i = 0; i < header.count; i++) {
		memcpy(&entry, bytes + sizeof(header) + i * sizeof(entry), sizeof(entry));
		if (entry.flags != MACHINE_CACHE)
			continue;
		key = cache_string(bytes, size, entry.key);
		path = cache_string(bytes, size, entry.value);
		if (key && path && !strcmp(key, soname))
			visit(path, arg);
	}
	return 0;
}

int find_cache_visit(const char *soname, void (*visit)(const char *path, void *arg), void *arg)
{
	int fd = open(FIND_CACHE, O_RDONLY | O_CLOEXEC), error = 0;
	struct stat st;
	char *data;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) || st.st_size <= 0 || (size_t)st.st_size > CACHE_LIMIT)
		goto out_close;
	data = malloc(st.st_size);
	if (!data) {
		error = -ENOMEM;
		goto out_close;
	}
	if (pread(fd, data, st.st_size, 0) == st.st_size)
		find_cache_lookup(data, st.st_size, soname, visit, arg);
	free(data);
out_close:
	close(fd);
	return error;
}
