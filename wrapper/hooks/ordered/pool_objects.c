/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/pool_objects.h"
#include "common/system/forks.h"
#include "common/gpu/gpu.h"
#include "vmem/vmem.h"
#include "wrapper/real.h"

#include <stdint.h>
#include <stdlib.h>
#include <utlist.h>

pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
FORKS_ENTRY(forks_pools_lock) = {.lock = &pools_lock};

/* Under pools_lock: */
struct pool *pools;
static struct pool_block *blocks; /* by address */
static size_t nfree;              /* blocks that are free, or being given back; also read without */
static struct pool_giver *givers; /* those that began first come first */
static uint64_t last_giver;       /* so many have begun */
static pthread_cond_t given = PTHREAD_COND_INITIALIZER; /* there are fewer givers */
static struct {
	CUmemoryPool pool;
	bool known;
} current[GPU_MAX];      /* the pools of the devices */
static uint64_t changes; /* of them */
static uint64_t last_id;

struct pool *pool_find(CUmemoryPool handle)
{
	struct pool *p;

	LL_SEARCH_SCALAR(pools, p, handle, handle);
	return handle ? p : NULL;
}

uint64_t pool_id(CUmemoryPool handle)
{
	const struct pool *p;
	uint64_t id;

	pthread_mutex_lock(&pools_lock);
	p = pool_find(handle);
	id = p ? p->id : 0;
	pthread_mutex_unlock(&pools_lock);
	return id;
}

struct pool *pool_end(uint64_t id)
{
	struct pool *p;

	LL_SEARCH_SCALAR(pools, p, id, id);
	if (p)
		p->handle = NULL;
	return p;
}

static struct pool *pool_object(void)
{
	struct pool *p;

	LL_FOREACH(pools, p)
		if (!p->handle && !p->blocks) {
			*p = (struct pool){.next = p->next};
			return p;
		}
	p = calloc(1, sizeof(*p));
	if (p)
		LL_PREPEND(pools, p);
	return p;
}

/*
 * With pools_lock held: the pool @handle, with the attributes of a new one, is served here. NULL: no
 * host memory.
 */
static struct pool *pool_add(CUmemoryPool handle, CUdevice dev)
{
	struct pool *p = pool_object();

	if (!p)
		return NULL;
	p->handle = handle;
	p->id = ++last_id;
	p->dev = dev;
	p->events = true;
	p->any_stream = true;
	p->dependencies = true;
	return p;
}

static void pool_reserves(struct pool *p, size_t size)
{
	p->reserved += size;
	if (p->reserved_high < p->reserved)
		p->reserved_high = p->reserved;
}

size_t pool_keeps(const struct pool *p)
{
	return p->handle ? p->threshold : 0;
}

bool pool_has_too_much(const struct pool *p)
{
	return p->idle && p->reserved > pool_keeps(p);
}

void pool_block_use(struct pool_block *b, size_t size)
{
	struct pool *p = b->pool;

	b->size = size;
	p->used += size;
	if (p->used_high < p->used)
		p->used_high = p->used;
}

void pool_block_end_use(struct pool_block *b)
{
	b->pool->used -= b->size;
}

static void count_free(ptrdiff_t more)
{
	__atomic_store_n(&nfree, nfree + (size_t)more, __ATOMIC_RELAXED);
}

void pool_block_put(struct pool_list *list, struct pool_block *b)
{
	pool_list_put(list, b);
	b->pool->idle += b->room;
	count_free(1);
}

void pool_block_take(struct pool_block *b)
{
	pool_list_remove(b);
	b->pool->idle -= b->room;
	count_free(-1);
}

struct pool_block *pool_block_find(CUdeviceptr ptr)
{
	struct pool_block *b;

	HASH_FIND(hh, blocks, &ptr, sizeof(ptr), b);
	return b;
}

bool pool_block_add(struct pool_block *b)
{
	HASH_ADD(hh, blocks, ptr, sizeof(b->ptr), b);
	if (!b->hh.tbl)
		return false;
	b->pool->blocks++;
	pool_reserves(b->pool, b->room);
	pool_block_use(b, b->size);
	return true;
}

void pool_block_remove(struct pool_block *b)
{
	HASH_DELETE(hh, blocks, b);
	b->pool->blocks--;
	b->pool->reserved -= b->room;
}

void pool_giver_begins(struct pool_giver *giver, CUcontext ctx)
{
	*giver = (struct pool_giver){.number = ++last_giver, .ctx = ctx};
	DL_APPEND(givers, giver);
}

void pool_giver_ends(struct pool_giver *giver)
{
	/* The child of a fork() in a handler has forgotten it, and returns here. */
	if (givers)
		DL_DELETE(givers, giver);
	pthread_cond_broadcast(&given);
}

bool pool_givers_wait(void)
{
	uint64_t last = last_giver;
	bool any = givers;

	while (givers && givers->number <= last)
		pthread_cond_wait(&given, &pools_lock);
	return any;
}

static bool is_giving(CUcontext ctx)
{
	const struct pool_giver *giver;

	DL_FOREACH(givers, giver)
		if (giver->ctx == ctx)
			break;
	return giver;
}

bool pool_givers_wait_of(CUcontext ctx)
{
	bool any = is_giving(ctx);

	while (is_giving(ctx))
		pthread_cond_wait(&given, &pools_lock);
	return any;
}

/*
 * Releases lock meanwhile. False: the driver does not unmap it. Any allocation may have the memory at once
 * after vmem_free_kept(), so it is that of no block before.
 */
static bool block_free(struct pool_block *b)
{
	struct pool *p = b->pool;
	struct pool_giver giver;
	CUresult result;

	count_free(1); /* first, as it is read without the lock */
	pool_block_take(b);
	pool_block_remove(b);
	p->blocks++; /* the object stays that of this pool */
	pool_giver_begins(&giver, b->ctx);
	pthread_mutex_unlock(&pools_lock);
	result = vmem_free_kept(b->ptr);
	pthread_mutex_lock(&pools_lock);
	pool_giver_ends(&giver);
	count_free(-1);
	p->blocks--;
	b->size = 0;
	/* An invalid one has gone with its context. Without host memory it stays mapped. */
	if (!result || result == CUDA_ERROR_INVALID_VALUE || !pool_block_add(b)) {
		free(b);
		return true;
	}
	pool_block_put(&p->passed, b);
	return false;
}

void pool_shrink(struct pool *p, size_t keep)
{
	while (p->reserved > keep && p->passed.first && block_free(p->passed.first))
		;
}

void pool_device_learn(CUdevice dev)
{
	int events = 0, any_stream = 0, dependencies = 0;
	cuuint64_t before, threshold = 0;
	CUmemoryPool pool = NULL, usual = NULL;
	struct pool *p;

	pthread_mutex_lock(&pools_lock);
	before = changes;
	pthread_mutex_unlock(&pools_lock);
	if (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&pool, dev) ||
	    real.cuDeviceGetDefaultMemPool(&usual, dev)) {
		pool = NULL;
		usual = NULL;
	}
	if (usual) {
		real.cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
		real.cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
					   &events);
		real.cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
					   &any_stream);
		real.cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
					   &dependencies);
	}
	pthread_mutex_lock(&pools_lock);
	p = usual && !pool_find(usual) ? pool_add(usual, dev) : NULL;
	if (p) {
		p->threshold = threshold;
		p->events = events;
		p->any_stream = any_stream;
		p->dependencies = dependencies;
	}
	if (changes == before) {
		current[dev].pool = pool;
		current[dev].known = true;
	}
	pthread_mutex_unlock(&pools_lock);
}

static bool is_plain(const CUmemPoolProps *props)
{
	return props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !props->handleTypes &&
	       !props->maxSize && !props->usage;
}

void pool_created(CUmemoryPool handle, const CUmemPoolProps *props)
{
	struct pool *earlier;

	pthread_mutex_lock(&pools_lock);
	earlier = pool_find(handle);
	/* Its end is not noted yet. */
	if (earlier)
		earlier->handle = NULL;
	if (props && is_plain(props))
		pool_add(handle, props->location.id);
	pthread_mutex_unlock(&pools_lock);
}

void pool_device_changed(void)
{
	pthread_mutex_lock(&pools_lock);
	for (CUdevice dev = 0; dev < GPU_MAX; dev++)
		current[dev].known = false;
	changes++;
	pthread_mutex_unlock(&pools_lock);
}

void pool_attribute_set(CUmemoryPool handle, CUmemPool_attribute attr, const void *value)
{
	struct pool *p;

	pthread_mutex_lock(&pools_lock);
	p = pool_find(handle);
	if (p && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		p->threshold = *(const cuuint64_t *)value;
	else if (p && attr == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)
		p->events = *(const int *)value;
	else if (p && attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)
		p->any_stream = *(const int *)value;
	else if (p && attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		p->dependencies = *(const int *)value;
	else if (p && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		p->reserved_high = p->reserved;
	else if (p && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		p->used_high = p->used;
	pthread_mutex_unlock(&pools_lock);
}

static size_t amount(const struct pool *p, CUmemPool_attribute attr)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return p->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return p->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return p->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return p->used_high;
	default:
		return 0;
	}
}

void pool_attribute_add(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	const struct pool *p;
	size_t size;

	pthread_mutex_lock(&pools_lock);
	p = pool_find(handle);
	size = p ? amount(p, attr) : 0;
	pthread_mutex_unlock(&pools_lock);
	if (size)
		*(cuuint64_t *)value += size;
}

static bool find_device(CUmemoryPool handle, CUdevice *dev)
{
	const struct pool *p;

	pthread_mutex_lock(&pools_lock);
	p = pool_find(handle);
	if (p)
		*dev = p->dev;
	pthread_mutex_unlock(&pools_lock);
	return p;
}

/* A default pool is unknown before the first allocation on its device. */
bool pool_device(CUmemoryPool handle, CUdevice *dev)
{
	CUmemoryPool usual;

	if (find_device(handle, dev))
		return true;
	if (!driver_table())
		return false;
	for (CUdevice d = 0; d < GPU_MAX && !real.cuDeviceGetDefaultMemPool(&usual, d); d++)
		if (usual == handle)
			pool_device_learn(d);
	return find_device(handle, dev);
}

bool pool_handle_of(CUdeviceptr ptr, CUmemoryPool *handle)
{
	const struct pool_block *b;

	pthread_mutex_lock(&pools_lock);
	b = pool_block_find(ptr);
	if (b)
		*handle = b->pool->handle;
	pthread_mutex_unlock(&pools_lock);
	return b;
}

struct pool *pool_of_device(CUdevice dev, bool *known)
{
	*known = current[dev].known;
	return pool_find(current[dev].pool);
}

void pool_device_forget(CUdevice dev)
{
	current[dev].known = false;
}

void pool_blocks_forget(CUcontext ctx)
{
	struct pool_block *b, *next;

	HASH_ITER(hh, blocks, b, next) {
		if (b->ctx != ctx)
			continue;
		b->from = NULL;
		if (b->list)
			pool_block_take(b);
		else
			pool_block_end_use(b);
		pool_block_remove(b);
		free(b);
	}
}

bool pool_none_is_free(void)
{
	return !__atomic_load_n(&nfree, __ATOMIC_RELAXED);
}

static void forget_in_child(void)
{
	pthread_cond_init(&given, NULL);
	pools = NULL;
	blocks = NULL;
	nfree = 0;
	givers = NULL;
}
FORKS_CHILD(forget_in_child);
