/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/handles.h"
#include "common/protocol/quota.h"
#include "common/system/forks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* With neither references nor mappings it is forgotten. Its memory may outlive its name. */
struct handle {
	uint64_t handle;
	enum driver_memory_kind kind;
	size_t size;
	unsigned int refs, maps;
	unsigned int releasing; /* of refs: the driver is about to release so many */
	UT_hash_handle hh;
};

struct mapping {
	uint64_t ptr;
	size_t size;
	struct handle *of;
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static struct handle *handles;   /* by name; under lock, as the next */
static struct mapping *mappings; /* by the first address */

static struct handle *find_locked(uint64_t handle)
{
	struct handle *h;

	HASH_FIND(hh, handles, &handle, sizeof(handle), h);
	return h;
}

/* Under which its memory is recorded: the driver may give the handle to other memory while this one is mapped. */
static uint64_t key_of(const struct handle *h)
{
	return (uintptr_t)h;
}

/* Forget the handle if nothing keeps its memory. */
static void put_locked(struct handle *h)
{
	if (h->refs || h->maps)
		return;
	driver_memory_remove(h->kind, key_of(h));
	driver_memory_remove(DRIVER_MEMORY_VMM_EXPORT, key_of(h));
	driver_memory_remove(DRIVER_MEMORY_DMABUF_LEFT, key_of(h));
	if (find_locked(h->handle) == h)
		HASH_DELETE(hh, handles, h);
	free(h);
}

void handles_add_taken(uint64_t handle, enum driver_memory_kind kind, size_t size, CUdevice dev)
{
	struct handle *h = calloc(1, sizeof(*h)), *old = NULL;

	if (!h) {
		quota_give(dev, size);
		return;
	}
	*h = (struct handle){.handle = handle, .kind = kind, .size = size, .refs = 1};
	pthread_mutex_lock(&lock);
	HASH_REPLACE(hh, handles, handle, sizeof(h->handle), h, old);
	if (old) {
		old->refs = 0;
		put_locked(old);
	}
	if (h->hh.tbl) {
		driver_memory_add_taken(kind, key_of(h), size, dev, NULL);
	} else {
		free(h); /* the table had no memory for it */
		quota_give(dev, size);
	}
	pthread_mutex_unlock(&lock);
}

void handles_add(uint64_t handle, enum driver_memory_kind kind, size_t size)
{
	handles_add_taken(handle, kind, size, -1);
}

void handles_retain(uint64_t handle)
{
	struct handle *h;

	pthread_mutex_lock(&lock);
	h = find_locked(handle);
	if (h)
		h->refs++;
	pthread_mutex_unlock(&lock);
}

void handles_releasing(uint64_t handle)
{
	struct handle *h;

	pthread_mutex_lock(&lock);
	h = find_locked(handle);
	if (h && h->refs > h->releasing)
		h->releasing++;
	pthread_mutex_unlock(&lock);
}

void handles_released(uint64_t handle, bool released)
{
	struct handle *h;

	pthread_mutex_lock(&lock);
	h = find_locked(handle);
	if (h && h->releasing) {
		h->releasing--;
		h->refs -= released;
		put_locked(h);
	}
	pthread_mutex_unlock(&lock);
}

void handles_release(uint64_t handle)
{
	handles_releasing(handle);
	handles_released(handle, true);
}

void handles_export(uint64_t handle, enum driver_memory_kind kind)
{
	const struct handle *h;

	pthread_mutex_lock(&lock);
	h = find_locked(handle);
	if (h)
		driver_memory_add(kind, key_of(h), 0);
	pthread_mutex_unlock(&lock);
}

bool handles_are_mapped(uint64_t ptr, size_t size)
{
	struct mapping *m, *next;
	bool found = false;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, mappings, m, next)
		found |= m->ptr < ptr + size && ptr < m->ptr + m->size;
	pthread_mutex_unlock(&lock);
	return found;
}

bool handles_export_dmabuf(uint64_t ptr, size_t size)
{
	struct mapping *m, *next;
	bool found = false;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, mappings, m, next)
		if (m->ptr < ptr + size && ptr < m->ptr + m->size) {
			driver_memory_add(DRIVER_MEMORY_DMABUF_LEFT, key_of(m->of), 0);
			found = true;
		}
	pthread_mutex_unlock(&lock);
	return found;
}

static void forget_mapping_locked(struct mapping *m)
{
	struct handle *h = m->of;

	HASH_DELETE(hh, mappings, m);
	free(m);
	h->maps--;
	put_locked(h);
}

void handles_map(uint64_t handle, uint64_t ptr, size_t size)
{
	struct mapping *m = calloc(1, sizeof(*m)), *old;
	struct handle *h;

	if (!m)
		return;
	*m = (struct mapping){.ptr = ptr, .size = size};
	pthread_mutex_lock(&lock);
	HASH_FIND(hh, mappings, &ptr, sizeof(ptr), old);
	if (old)
		forget_mapping_locked(old);
	h = find_locked(handle);
	if (h)
		HASH_ADD(hh, mappings, ptr, sizeof(m->ptr), m);
	if (m->hh.tbl) {
		m->of = h;
		h->maps++;
		if (h->size < size) {
			h->size = size;
			driver_memory_add(h->kind, key_of(h), size);
		}
	} else {
		free(m);
	}
	pthread_mutex_unlock(&lock);
}

void handles_unmap(uint64_t ptr, size_t size)
{
	struct mapping *m, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, mappings, m, next)
		if (m->ptr >= ptr && m->ptr - ptr < size)
			forget_mapping_locked(m);
	pthread_mutex_unlock(&lock);
}
