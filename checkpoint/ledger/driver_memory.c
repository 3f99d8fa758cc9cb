/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/driver_memory.h"
#include "common/gpu/gpu.h"
#include "common/protocol/quota.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/vmem.h"

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
	CUcontext ctx;         /* the entry ends with it; NULL: unknown */
	unsigned long long id; /* of DMABUF: the allocation that starts at the handle */
	CUdevice dev;          /* whose quota its bytes are taken from; -1: none */
	bool ending;
	unsigned int opens; /* of driver_memory_opened(), whose ends are to come; else 0 */
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static struct entry *entries; /* under lock */
static size_t total;          /* written under lock, as the next */
static size_t counts[DRIVER_MEMORY_KINDS];

/* Add an entry to the sums, or subtract it. */
static void account_locked(const struct entry *e, bool added)
{
	size_t *count = &counts[e->key.kind];

	__atomic_store_n(&total, added ? total + e->size : total - e->size, __ATOMIC_RELAXED);
	__atomic_store_n(count, added ? *count + 1 : *count - 1, __ATOMIC_RELAXED);
}

/* Without the lock, which others wait for. */
static void end(struct entry *e)
{
	if (e)
		quota_give(e->dev, e->size);
	free(e);
}

static void add(const struct entry *what)
{
	struct entry *e = malloc(sizeof(*e)), *old = NULL;
	bool noted; /* false: the table had no memory for it */

	if (!e) {
		quota_give(what->dev, what->size);
		return;
	}
	*e = *what;
	pthread_mutex_lock(&lock);
	HASH_REPLACE(hh, entries, key, sizeof(e->key), e, old);
	if (old) {
		account_locked(old, false);
		e->opens += old->opens;
	}
	noted = e->hh.tbl;
	if (noted)
		account_locked(e, true);
	pthread_mutex_unlock(&lock);
	end(old);
	if (!noted)
		end(e);
}

void driver_memory_add_taken(enum driver_memory_kind kind, uint64_t handle, size_t size,
			     CUdevice dev, CUcontext ctx)
{
	add(&(struct entry){.key = {handle, kind}, .size = size, .ctx = ctx, .dev = dev});
}

void driver_memory_add(enum driver_memory_kind kind, uint64_t handle, size_t size)
{
	driver_memory_add_taken(kind, handle, size, -1, NULL);
}

void driver_memory_opened(uint64_t ptr, size_t size, CUcontext ctx)
{
	add(&(struct entry){.key = {ptr, DRIVER_MEMORY_IPC_IMPORT},
			    .size = size,
			    .ctx = ctx,
			    .dev = -1,
			    .opens = 1});
}

void driver_memory_add_texture(uint64_t handle, CUcontext ctx)
{
	driver_memory_add_taken(DRIVER_MEMORY_FIXED_TEXTURE, handle, 0, -1, ctx);
}

void driver_memory_add_dmabuf(const struct vmem_info *info)
{
	add(&(struct entry){.key = {info->start, DRIVER_MEMORY_DMABUF}, .id = info->id, .dev = -1});
}

static struct entry *find_locked(enum driver_memory_kind kind, uint64_t handle)
{
	struct key key = {handle, kind};
	struct entry *e;

	HASH_FIND(hh, entries, &key, sizeof(key), e);
	return e;
}

static void remove_locked(struct entry *e)
{
	HASH_DELETE(hh, entries, e);
	account_locked(e, false);
}

void driver_memory_remove(enum driver_memory_kind kind, uint64_t handle)
{
	struct entry *e;

	pthread_mutex_lock(&lock);
	e = find_locked(kind, handle);
	if (e && e->opens > 1) {
		e->opens--;
		e = NULL;
	} else if (e) {
		remove_locked(e);
	}
	pthread_mutex_unlock(&lock);
	end(e);
}

void driver_memory_ending(enum driver_memory_kind kind, uint64_t handle)
{
	struct entry *e;

	pthread_mutex_lock(&lock);
	e = find_locked(kind, handle);
	if (e)
		e->ending = true;
	pthread_mutex_unlock(&lock);
}

void driver_memory_ended(enum driver_memory_kind kind, uint64_t handle, bool gone)
{
	struct entry *e;
	bool ended;

	pthread_mutex_lock(&lock);
	e = find_locked(kind, handle);
	ended = e && e->ending && gone;
	if (ended)
		remove_locked(e);
	else if (e)
		e->ending = false;
	pthread_mutex_unlock(&lock);
	if (ended)
		end(e);
}

void driver_memory_release_context(CUcontext ctx)
{
	size_t taken[GPU_MAX] = {0};
	struct entry *e, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, entries, e, next)
		if (e->ctx == ctx) {
			if (e->dev >= 0)
				taken[e->dev] += e->size;
			remove_locked(e);
			free(e);
		}
	pthread_mutex_unlock(&lock);
	for (CUdevice dev = 0; dev < GPU_MAX; dev++)
		if (taken[dev])
			quota_give(dev, taken[dev]);
}

CONTEXT_GONE(driver_memory_release_context);

size_t driver_memory_total(void)
{
	return __atomic_load_n(&total, __ATOMIC_RELAXED);
}

/* Forget the dma-bufs whose allocation was freed. */
static void tidy_dmabufs(void)
{
	struct entry *e, *next;
	struct vmem_info info;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, entries, e, next)
		if (e->key.kind == DRIVER_MEMORY_DMABUF &&
		    (!vmem_lookup(e->key.handle, &info) || info.id != e->id)) {
			remove_locked(e);
			free(e);
		}
	pthread_mutex_unlock(&lock);
}

size_t driver_memory_count(enum driver_memory_kind kind)
{
	if (kind == DRIVER_MEMORY_DMABUF && __atomic_load_n(&counts[kind], __ATOMIC_RELAXED))
		tidy_dmabufs();
	return __atomic_load_n(&counts[kind], __ATOMIC_RELAXED);
}
