/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/unmanaged.h"

#include <pthread.h>
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
static size_t total;          /* written under lock */

void unmanaged_add(enum unmanaged_kind kind, uint64_t handle, size_t size)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return;
	e->key = (struct key){handle, kind};
	e->size = size;
	pthread_mutex_lock(&lock);
	HASH_ADD(hh, entries, key, sizeof(e->key), e);
	__atomic_store_n(&total, total + size, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

void unmanaged_remove(enum unmanaged_kind kind, uint64_t handle)
{
	struct key key = {handle, kind};
	struct entry *e;

	pthread_mutex_lock(&lock);
	HASH_FIND(hh, entries, &key, sizeof(key), e);
	if (e) {
		HASH_DELETE(hh, entries, e);
		__atomic_store_n(&total, total - e->size, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
	free(e);
}

size_t unmanaged_total(void)
{
	return __atomic_load_n(&total, __ATOMIC_RELAXED);
}
