/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/known.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct snapshot_chunk *chunk_of(const struct snapshot_known *k, uint32_t reference)
{
	size_t i = reference - 1;

	return i < k->old->nchunks ? &k->old->chunks[i] : &k->chunks[i - k->old->nchunks];
}

/* The slot of @hash: it is empty, or has a chunk with that hash. */
static uint32_t *find_slot(const struct snapshot_known *k, struct hash128 hash)
{
	size_t i = hash.low & k->mask;

	while (k->slots[i] && !hash_equal(chunk_of(k, k->slots[i])->hash, hash))
		i = (i + 1) & k->mask;
	return &k->slots[i];
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/*
 * True if the file has all its places, those from @begin to @end, at least half of its bytes are in
 * them, and it was not modified after the manifest was written (@manifest).
 */
static bool worth_keeping(int dir, const struct stat *manifest, const struct snapshot_index *old,
			  size_t begin, size_t end)
{
	char name[SNAPSHOT_NAME_SIZE];
	size_t needed = 0, last = 0;
	struct stat st;

	snapshot_name(SNAPSHOT_DATA, old->chunks[old->order[begin]].file, name);
	for (size_t i = begin; i < end; i++) {
		const struct snapshot_chunk *c = &old->chunks[old->order[i]];

		if (i == begin || c->offset != old->chunks[old->order[i - 1]].offset)
			needed += snapshot_padded(c->stored);
		last = c->offset + c->stored;
	}
	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && last <= (size_t)st.st_size &&
	       needed >= (size_t)st.st_size / 2 && !is_later(&st.st_mtim, &manifest->st_mtim);
}

int snapshot_known_init(struct snapshot_known *k, int dir, const struct snapshot_index *old)
{
	struct stat manifest;

	*k = (struct snapshot_known){.old = old};
	k->usable = calloc(old->nchunks + 1, sizeof(*k->usable));
	if (!k->usable)
		return -ENOMEM;
	if (fstatat(dir, SNAPSHOT_MANIFEST, &manifest, AT_SYMLINK_NOFOLLOW))
		return 0;
	for (size_t begin = 0, end; begin < old->norder; begin = end) {
		uint32_t file = old->chunks[old->order[begin]].file;
		bool usable;

		for (end = begin; end < old->norder && old->chunks[old->order[end]].file == file;)
			end++;
		usable = worth_keeping(dir, &manifest, old, begin, end);
		for (size_t i = begin; i < end; i++)
			k->usable[old->order[i]] = usable;
	}
	return 0;
}

int snapshot_known_plan(struct snapshot_known *k, struct snapshot_chunk *chunks, size_t nchunks)
{
	const struct snapshot_index *old = k->old;
	size_t slots = 16;

	/* At most half full, so that a search ends soon. */
	while (slots < 2 * (nchunks + old->nchunks))
		slots *= 2;
	k->chunks = chunks;
	k->nchunks = nchunks;
	k->mask = slots - 1;
	k->slots = calloc(slots, sizeof(*k->slots));
	k->same = calloc(nchunks + 1, sizeof(*k->same));
	if (!k->slots || !k->same)
		return -ENOMEM;
	for (size_t i = 0; i < old->nchunks; i++)
		if (k->usable[i])
			*find_slot(k, old->chunks[i].hash) = 1 + i;
	return 0;
}

enum snapshot_novelty snapshot_known_add(struct snapshot_known *k, size_t i)
{
	uint32_t *slot = find_slot(k, k->chunks[i].hash);

	if (!*slot) {
		*slot = 1 + k->old->nchunks + i;
		return SNAPSHOT_NEW;
	}
	k->same[i] = *slot;
	return *slot <= k->old->nchunks ? SNAPSHOT_SEEN_BEFORE : SNAPSHOT_SEEN_HERE;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t address = *(const uint64_t *)a;
	uint64_t other = ((const struct snapshot_chunk *)b)->address;

	return address < other ? -1 : address > other;
}

const struct snapshot_chunk *snapshot_known_has(const struct snapshot_known *k, uint64_t address,
						struct hash128 digest)
{
	const struct snapshot_index *old = k->old;
	const struct snapshot_chunk *before = NULL;

	if (old->nchunks)
		before = bsearch(&address, old->chunks, old->nchunks, sizeof(*old->chunks),
				 compare_addresses);
	if (!before || !k->usable[before - old->chunks] || !hash_equal(before->digest, digest))
		return NULL;
	return before;
}

enum snapshot_novelty snapshot_known_digest(struct snapshot_known *k, size_t i)
{
	struct snapshot_chunk *chunk = &k->chunks[i];
	const struct snapshot_chunk *before = snapshot_known_has(k, chunk->address, chunk->digest);

	if (!before)
		return SNAPSHOT_NEW;
	chunk->hash = before->hash;
	k->same[i] = 1 + (before - k->old->chunks);
	return SNAPSHOT_SEEN_BEFORE;
}

void snapshot_known_settle(struct snapshot_known *k)
{
	for (size_t i = 0; i < k->nchunks; i++) {
		const struct snapshot_chunk *same;

		if (!k->same[i])
			continue;
		same = chunk_of(k, k->same[i]);
		k->chunks[i].file = same->file;
		k->chunks[i].offset = same->offset;
		k->chunks[i].stored = same->stored;
		k->chunks[i].codec = same->codec;
	}
}

void snapshot_known_free(struct snapshot_known *k)
{
	free(k->usable);
	free(k->slots);
	free(k->same);
	memset(k, 0, sizeof(*k));
}
