/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/host/hostpool.h"
#include "common/system/hostmem.h"
#include "common/settings.h"
#include "common/text.h"
#include "common/system/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define LOG_PREFIX "hostpool: "
#include "common/log.h"

#define PAGE         4096UL
#define CHUNK        (4UL << 20) /* the part that a thread makes present at once */
#define SMALL        (1UL << 30)
#define FEW_THREADS  4
#define MANY_THREADS 16

static struct {
	struct hostpool_block *blocks;
	size_t count, room;
} pool;

/* For the blocks of a pool that begins; and what it was. */
static struct {
	int fd;        /* -1: none */
	size_t blocks; /* that there can be */
	size_t used;   /* the first ones of the pool */
	dev_t device;
	ino_t inode;
} file = {.fd = -1};

static int find_room(size_t count)
{
	struct hostpool_block *blocks;

	if (count <= pool.room)
		return 0;
	blocks = realloc(pool.blocks, count * sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	pool.blocks = blocks;
	pool.room = count;
	return 0;
}

int hostpool_grow(size_t count)
{
	if (find_room(count))
		return -ENOMEM;
	for (; pool.count < count; pool.count++) {
		bool filed = file.fd >= 0 && file.used == pool.count && file.used < file.blocks;
		size_t at = pool.count * HOSTPOOL_BLOCK;
		char *start = filed ? hostmem_map(file.fd, at, HOSTPOOL_BLOCK) : NULL;

		filed = start;
		if (!start)
			start = hostmem_reserve(HOSTPOOL_BLOCK);
		if (!start)
			return -errno;
		file.used += filed;
		pool.blocks[pool.count] = (struct hostpool_block){.start = start, .filed = filed};
	}
	return 0;
}

/* Whether @fd is a memory file that cannot shrink, of status @st, and the pool has no block. 0 or a negative errno. */
static int check_file(int fd, struct stat *st)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (pool.count)
		return -EBUSY;
	return seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, st) ? -EINVAL : 0;
}

static int take(int fd, size_t count)
{
	char *start;

	if (find_room(count))
		return -ENOMEM;
	start = hostmem_map(fd, 0, count * HOSTPOOL_BLOCK);
	if (!start)
		return -errno;
	for (; pool.count < count; pool.count++, start += HOSTPOOL_BLOCK)
		pool.blocks[pool.count] =
			(struct hostpool_block){.start = start, .present = true, .filed = true};
	return 0;
}

int hostpool_take(int fd, size_t count)
{
	struct stat st;
	int ret = check_file(fd, &st);

	if (!ret && (!count || (size_t)st.st_size != count * HOSTPOOL_BLOCK))
		ret = -EINVAL;
	return ret ? ret : take(fd, count);
}

int hostpool_begin_file(int fd)
{
	struct stat st;
	int ret = hostmem_may_populate_files() ? check_file(fd, &st) : -EOPNOTSUPP;

	if (ret)
		return ret;
	file.fd = fd;
	file.blocks = st.st_size / HOSTPOOL_BLOCK;
	file.used = 0;
	file.device = st.st_dev;
	file.inode = st.st_ino;
	return 0;
}

void hostpool_end_file(void)
{
	file.fd = -1;
}

int hostpool_take_back(int fd, size_t count)
{
	struct stat st;
	int ret = check_file(fd, &st);

	if (!ret &&
	    (!count || count > file.blocks || st.st_dev != file.device || st.st_ino != file.inode))
		ret = -EINVAL;
	return ret ? ret : take(fd, count);
}

size_t hostpool_count(void)
{
	return pool.count;
}

const struct hostpool_block *hostpool_block(size_t i)
{
	return &pool.blocks[i];
}

size_t hostpool_held(size_t first)
{
	size_t bytes = 0;

	for (size_t i = first; i < pool.count; i++)
		bytes += pool.blocks[i].pinned || pool.blocks[i].present ? HOSTPOOL_BLOCK : 0;
	return bytes;
}

size_t hostpool_pinned(void)
{
	size_t bytes = 0;

	for (size_t i = 0; i < pool.count; i++)
		bytes += pool.blocks[i].pinned ? HOSTPOOL_BLOCK : 0;
	return bytes;
}

size_t hostpool_resident(void)
{
	unsigned char pages[HOSTPOOL_BLOCK / PAGE];
	size_t count = 0;

	for (size_t i = 0; i < pool.count; i++) {
		if (mincore(pool.blocks[i].start, HOSTPOOL_BLOCK, pages))
			continue;
		for (size_t p = 0; p < sizeof(pages); p++)
			count += pages[p] & 1;
	}
	return count * PAGE;
}

size_t hostpool_limit(void)
{
	size_t size = SIZE_MAX;

	setting_size(SETTING_HOST_POOL, &size);
	return size < SIZE_MAX ? size : hostmem_limit() / 4;
}

static void *populate_main(void *arg)
{
	struct workers *w = arg;
	size_t i;

	while (workers_next(w, &i)) {
		const struct hostpool_block *b = &pool.blocks[i * CHUNK / HOSTPOOL_BLOCK];
		int error =
			b->pinned ? 0
				  : hostmem_populate(b->start + i * CHUNK % HOSTPOOL_BLOCK, CHUNK);

		if (error)
			workers_fail(w, error);
	}
	return NULL;
}

int hostpool_populate(size_t count, const bool *cancel)
{
	struct workers w = {.count = count * (HOSTPOOL_BLOCK / CHUNK), .cancel = cancel};
	bool small = count * HOSTPOOL_BLOCK < SMALL;
	int error = workers_run(&w, small ? FEW_THREADS : MANY_THREADS, populate_main, &w);

	for (size_t i = 0; i < count && !error; i++)
		pool.blocks[i].present = true;
	return error;
}

/*
 * The program's captures may forbid the calls that pin and unpin to threads of other modes, and break by
 * them.
 */
static bool enter(const struct cuda_driver *drv, CUcontext ctx)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	return !drv->cuThreadExchangeStreamCaptureMode(&mode) && !drv->cuCtxSetCurrent(ctx);
}

static bool is_cancelled(const bool *cancel)
{
	return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

void hostpool_pin(const struct cuda_driver *drv, CUcontext ctx, size_t count, const bool *cancel)
{
	if (!enter(drv, ctx))
		return;
	for (size_t i = 0; i < count && !is_cancelled(cancel); i++)
		if (!pool.blocks[i].pinned)
			pool.blocks[i].pinned = !drv->cuMemHostRegister_v2(
				pool.blocks[i].start, HOSTPOOL_BLOCK, CU_MEMHOSTREGISTER_PORTABLE);
	drv->cuCtxSetCurrent(NULL);
}

bool hostpool_unregister(const struct cuda_driver *drv, void *start)
{
	CUresult error = drv->cuMemHostUnregister(start);

	/* The context of the registration may be gone, and the registration with it. */
	if (!error || error == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
		return true;
	pr_warn("cuMemHostUnregister: driver error %d; the memory at %p is kept", error, start);
	return false;
}

void hostpool_unpin(const struct cuda_driver *drv, CUcontext ctx, size_t first, const bool *cancel)
{
	if (!enter(drv, ctx))
		return;
	for (size_t i = first; i < pool.count && !is_cancelled(cancel); i++)
		if (pool.blocks[i].pinned)
			pool.blocks[i].pinned = !hostpool_unregister(drv, pool.blocks[i].start);
	drv->cuCtxSetCurrent(NULL);
}

/* The block holds nothing: @advice is how the kernel gets its pages. */
static void give_back(struct hostpool_block *b, int advice)
{
	b->present = false;
	if (b->pinned)
		return;
	if (b->filed)
		b->filed = !hostmem_replace(b->start, HOSTPOOL_BLOCK);
	else if (madvise(b->start, HOSTPOOL_BLOCK, advice))
		pr_debug("madvise(%d): %s", advice, error_text(errno));
}

void hostpool_relax(bool ready, const bool *cancel)
{
	for (size_t i = 0; i < pool.count && !is_cancelled(cancel); i++)
		if (ready || !pool.blocks[i].present)
			give_back(&pool.blocks[i], MADV_FREE);
}

void hostpool_empty(size_t i)
{
	give_back(&pool.blocks[i], MADV_DONTNEED);
}

static void forget(void)
{
	file.used = 0;
	free(pool.blocks);
	memset(&pool, 0, sizeof(pool));
}

void hostpool_drop(const bool *cancel)
{
	for (size_t i = pool.count; i-- > 0 && !is_cancelled(cancel);) {
		bool last = i + 1 == pool.count && !pool.blocks[i].pinned;

		/* A file keeps what is only unmapped. */
		if (!last || pool.blocks[i].filed)
			hostpool_empty(i);
		if (last)
			hostmem_release(pool.blocks[--pool.count].start, HOSTPOOL_BLOCK);
	}
	if (!pool.count)
		forget();
}

bool hostpool_leave(size_t count)
{
	if (count > file.used || count > pool.count)
		return false;
	for (size_t i = 0; i < pool.count; i++)
		if (pool.blocks[i].pinned || (i < count && !pool.blocks[i].filed))
			return false;
	for (size_t i = 0; i < pool.count; i++)
		hostmem_release(pool.blocks[i].start, HOSTPOOL_BLOCK);
	forget();
	return true;
}
