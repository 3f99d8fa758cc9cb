/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/unmanaged.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct key {
	uint64_t handle;
	uint64_t kind;
};

struct entry {
	struct key key;
	size_t size;
	UT_hash_handle hh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries; /* under lock */
static size_t total;          /* written under lock, as the next */
static size_t counts[UNMANAGED_KINDS];

/* Add an entry to the sums, or take it away again. */
static void account_locked(const struct entry *e, bool added)
{
	size_t *count = &counts[e->key.kind];

	__atomic_store_n(&total, added ? total + e->size : total - e->size, __ATOMIC_RELAXED);
	__atomic_store_n(count, added ? *count + 1 : *count - 1, __ATOMIC_RELAXED);
}

void unmanaged_add(enum unmanaged_kind kind, uint64_t handle, size_t size)
{
	struct entry *e = calloc(1, sizeof(*e)), *old = NULL;
	bool noted; /* false: the table had no memory for it */

	if (!e)
		return;
	e->key = (struct key){handle, kind};
	e->size = size;
	pthread_mutex_lock(&lock);
	HASH_REPLACE(hh, entries, key, sizeof(e->key), e, old);
	if (old)
		account_locked(old, false);
	noted = e->hh.tbl;
	if (noted)
		account_locked(e, true);
	pthread_mutex_unlock(&lock);
	free(old);
	if (!noted)
		free(e);
}

void unmanaged_remove(enum unmanaged_kind kind, uint64_t handle)
{
	struct key key = {handle, kind};
	struct entry *e;

	pthread_mutex_lock(&lock);
	HASH_FIND(hh, entries, &key, sizeof(key), e);
	if (e) {
		HASH_DELETE(hh, entries, e);
		account_locked(e, false);
	}
	pthread_mutex_unlock(&lock);
	free(e);
}

size_t unmanaged_total(void)
{
	return __atomic_load_n(&total, __ATOMIC_RELAXED);
}

size_t unmanaged_count(enum unmanaged_kind kind)
{
	return __atomic_load_n(&counts[kind], __ATOMIC_RELAXED);
}
