/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the devices, and the table of addresses that the devices know.
 *
 * All memory of a device lies in one memfd, which is as good as endless: an allocation takes the
 * next bytes of it, and a free punches a hole. So offsets are never used twice, a mapping costs no
 * file descriptor, and what is mapped anew never shows what an earlier allocation left behind.
 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define POISON_BYTE  0xb5
#define POISON_WHOLE (4UL << 20) /* the first bytes of an allocation, all poisoned */

static int fds[SIM_HOST + 1];
static off_t next_offset[SIM_HOST + 1];

static struct sim_map **maps;
static size_t nmaps, maps_size;

int alloc_fd(CUdevice dev)
{
	char name[32];

	if (fds[dev])
		return fds[dev];
	snprintf(name, sizeof(name), "simulated-gpu-%d", dev);
	fds[dev] = memfd_create(name, MFD_CLOEXEC);
	return fds[dev];
}

int alloc_backing(const struct sim_alloc *alloc)
{
	return alloc->fd ? alloc->fd : alloc_fd(alloc->dev);
}

/*
 * Fresh memory holds garbage, as on a GPU. Past the first few MiB one page of each granule has to
 * do, so that a job of some GiB can be simulated quickly; the rest reads as zeros.
 */
static bool poison(const struct sim_alloc *alloc)
{
	static unsigned char page[64 * SIM_PAGE];
	size_t step, len;

	memset(page, POISON_BYTE, sizeof(page));
	for (size_t done = 0; done < alloc->size; done += step) {
		bool whole = done < POISON_WHOLE;

		step = whole ? sizeof(page) : SIM_GRANULARITY;
		len = whole ? sizeof(page) : SIM_PAGE;
		if (len > alloc->size - done)
			len = alloc->size - done;
		if (pwrite(alloc_backing(alloc), page, len, alloc->offset + (off_t)done) !=
		    (ssize_t)len)
			return false;
	}
	return true;
}

static void alloc_free(struct sim_alloc *alloc)
{
	if (!alloc->fd && !alloc->exported)
		fallocate(fds[alloc->dev], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  alloc->offset, (off_t)alloc->size);
	else if (alloc->fd > 0)
		close(alloc->fd);
	if (alloc->small)
		block_give(alloc);
	else if (alloc->fd >= 0 && !alloc->imported && alloc->dev != SIM_HOST)
		account_release(alloc->dev, alloc->size);
	object_remove(&alloc->obj);
	free(alloc);
}

/*
 * Make the memfd as long as it has to be, and poison @alloc. A GPU's memory is no file to the
 * program, whose limit on their size does not concern it.
 */
static bool fill(const struct sim_alloc *alloc)
{
	off_t length = alloc->fd ? (off_t)alloc->size : next_offset[alloc->dev];
	struct rlimit limit, most;
	bool limited, filled;

	getrlimit(RLIMIT_FSIZE, &limit);
	most = (struct rlimit){limit.rlim_max, limit.rlim_max};
	limited = limit.rlim_cur < (rlim_t)length;
	if (limited)
		setrlimit(RLIMIT_FSIZE, &most);
	filled = !ftruncate(alloc_backing(alloc), length) && poison(alloc);
	if (limited)
		setrlimit(RLIMIT_FSIZE, &limit);
	return filled;
}

static CUresult out_of_memory(int fd)
{
	if (fd > 0)
		close(fd);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Takes over @fd, which is as struct sim_alloc has it. */
static CUresult new_alloc(CUdevice dev, size_t size, struct sim_ctx *small, int fd,
			  struct sim_alloc **out)
{
	struct sim_alloc *alloc;

	if (size > sim.config.memory || alloc_fd(dev) < 0)
		return out_of_memory(fd);
	alloc = calloc(1, sizeof(*alloc));
	if (!alloc)
		return out_of_memory(fd);
	alloc->dev = dev;
	alloc->size = SIM_ROUND(size, SIM_PAGE);
	alloc->offset = fd ? 0 : next_offset[dev];
	alloc->small = small;
	alloc->fd = fd;
	if (small ? !block_take(alloc) : dev != SIM_HOST && !account_charge(dev, alloc->size)) {
		free(alloc);
		return out_of_memory(fd);
	}
	if (!fd)
		next_offset[dev] += (off_t)SIM_ROUND(size, SIM_GRANULARITY);
	object_add(KIND_ALLOC, &alloc->obj);
	/* It grows as it is used: CRIU takes memory for the whole length of a file. */
	if (!fill(alloc)) {
		alloc_free(alloc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = alloc;
	return CUDA_SUCCESS;
}

CUresult alloc_new(CUdevice dev, size_t size, struct sim_alloc **alloc)
{
	return new_alloc(dev, size, NULL, 0, alloc);
}

void alloc_put(struct sim_alloc *alloc)
{
	if (!alloc->handles && !alloc->maps)
		alloc_free(alloc);
}

/* The index of the first mapping that ends after @addr. */
static size_t map_index(CUdeviceptr addr)
{
	size_t low = 0, high = nmaps;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (maps[mid]->start + maps[mid]->size > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

struct sim_map *map_find(CUdeviceptr addr)
{
	size_t i = map_index(addr);

	return i < nmaps && maps[i]->start <= addr ? maps[i] : NULL;
}

struct sim_map *map_next(const struct sim_map *map)
{
	size_t i = map ? map_index(map->start + map->size) : 0;

	return i < nmaps ? maps[i] : NULL;
}

struct sim_map *map_insert(const struct sim_map *map)
{
	size_t i = map_index(map->start);
	struct sim_map *copy = malloc(sizeof(*copy));

	if (copy && nmaps == maps_size) {
		size_t size = maps_size ? 2 * maps_size : 64;
		struct sim_map **grown = realloc(maps, size * sizeof(*maps));

		if (!grown) {
			free(copy);
			return NULL;
		}
		maps = grown;
		maps_size = size;
	}
	if (!copy)
		return NULL;
	*copy = *map;
	copy->id = ++sim.next_id;
	memmove(&maps[i + 1], &maps[i], (nmaps - i) * sizeof(*maps));
	maps[i] = copy;
	nmaps++;
	return copy;
}

void map_remove(struct sim_map *map)
{
	size_t i = map_index(map->start);

	nmaps--;
	memmove(&maps[i], &maps[i + 1], (nmaps - i) * sizeof(*maps));
	free(map);
}

bool map_of_host(const struct sim_map *map)
{
	return map && map->kind == MAP_VMM && map->alloc->dev == SIM_HOST;
}

bool map_overlaps(CUdeviceptr start, size_t size)
{
	size_t i = map_index(start);

	return i < nmaps && maps[i]->start < start + size;
}

bool map_tiles(CUdeviceptr start, size_t size, enum sim_map_kind kind)
{
	CUdeviceptr at = start;

	for (size_t i = map_index(start); i < nmaps && at < start + size; i++) {
		if (maps[i]->start != at || maps[i]->kind != kind)
			return false;
		at += maps[i]->size;
	}
	return size && at == start + size;
}

bool map_covers(CUdeviceptr start, size_t size)
{
	CUdeviceptr at = start;

	for (size_t i = map_index(start); i < nmaps && at < start + size; i++) {
		if (maps[i]->start > at)
			return false;
		at = maps[i]->start + maps[i]->size;
	}
	return at >= start + size;
}

static bool reached(const struct sim_ctx *ctx, const struct sim_map *map, bool copy)
{
	if (map->kind == MAP_VMM)
		return map->access[ctx->dev] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return copy || map->kind >= MAP_MANAGED || map->dev == ctx->dev ||
	       (map->kind == MAP_IMPORTED && map->ctx == ctx_owner(ctx)) ||
	       (map->pool && map->pool->access[ctx->dev]) || ctx_accesses(ctx, map->ctx);
}

bool map_reached(const struct sim_ctx *ctx, CUdeviceptr start, size_t size, bool copy)
{
	if (!map_covers(start, size))
		return false;
	for (size_t i = map_index(start); i < nmaps && maps[i]->start < start + size; i++)
		if (!reached(ctx, maps[i], copy))
			return false;
	return true;
}

static int prot_of(unsigned char access)
{
	return (access & 1 ? PROT_READ : 0) | (access & 2 ? PROT_WRITE : 0);
}

/*
 * There is one set of page tables, the process's, so a range that any device may access is
 * accessible to all of them (and to the host).
 */
void map_protect(struct sim_map *map, bool accessible)
{
	int prot = accessible ? prot_of(map->host_access) : PROT_NONE;

	for (int dev = 0; accessible && dev < SIM_MAX_DEVICES; dev++)
		prot |= prot_of(map->access[dev]);
	mprotect((void *)map->start, SIM_ROUND(map->size, SIM_PAGE), prot);
}

/* If no address is to be given twice, nothing else may come to lie there. */
static void unmap_memory(struct sim_map *map)
{
	size_t size = SIM_ROUND(map->size, SIM_PAGE);

	if (sim.config.fresh)
		mmap((void *)map->start, size, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap((void *)map->start, size);
}

static CUresult map_somewhere(struct sim_map *map, int flags, int fd, off_t offset)
{
	size_t size = SIM_ROUND(map->size, SIM_PAGE);
	void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, offset);

	if (addr == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	map->start = (CUdeviceptr)addr;
	memset(map->access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sizeof(map->access));
	if (map_insert(map))
		return CUDA_SUCCESS;
	munmap(addr, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult map_alloc(struct sim_map *map, struct sim_alloc *alloc)
{
	CUresult result;

	map->alloc = alloc;
	result = map_somewhere(map, MAP_SHARED, alloc_backing(alloc), alloc->offset);
	if (result == CUDA_SUCCESS)
		alloc->maps++;
	return result;
}

CUresult alloc_map(struct sim_ctx *ctx, struct sim_alloc *alloc, enum sim_map_kind kind,
		   CUdeviceptr *ptr)
{
	struct sim_map map = {
		.size = alloc->size, .kind = kind, .ctx = ctx_owner(ctx), .dev = alloc->dev};
	CUresult result = map_alloc(&map, alloc);

	if (result == CUDA_SUCCESS)
		*ptr = map.start;
	return result;
}

/* @blocks: count by blocks, which small ones share. */
static CUresult device_new(struct sim_ctx *ctx, size_t size, enum sim_map_kind kind, bool blocks,
			   CUdeviceptr *ptr)
{
	struct sim_map map = {.size = size, .kind = kind, .ctx = ctx_owner(ctx), .dev = ctx->dev};
	bool small = blocks && size <= SIM_SMALL;
	size_t bytes = blocks && !small ? SIM_ROUND(size, SIM_GRANULARITY) : size;
	struct sim_alloc *alloc;
	CUresult result = new_alloc(ctx->dev, bytes, small ? ctx_owner(ctx) : NULL, 0, &alloc);

	if (result != CUDA_SUCCESS)
		return result;
	result = map_alloc(&map, alloc);
	if (result == CUDA_SUCCESS)
		*ptr = map.start;
	else
		alloc_put(alloc);
	return result;
}

CUresult memory_new(struct sim_ctx *ctx, size_t size, enum sim_map_kind kind, CUdeviceptr *ptr)
{
	struct sim_map map = {.size = size, .kind = kind, .ctx = ctx, .dev = ctx->dev};
	CUresult result;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (kind != MAP_HOST)
		return device_new(ctx, size, kind, false, ptr);
	result = map_somewhere(&map, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (result == CUDA_SUCCESS)
		*ptr = map.start;
	return result;
}

CUresult memory_new_small(struct sim_ctx *ctx, size_t size, CUdeviceptr *ptr)
{
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	return device_new(ctx, size, MAP_DEVICE, true, ptr);
}

void memory_free(struct sim_map *map)
{
	struct sim_alloc *alloc = map->alloc;
	struct sim_pool *pool = map->pool;
	size_t size = map->size;

	if (map->kind == MAP_REGISTERED)
		registered_less(map->dev, size);
	else
		unmap_memory(map);
	map_remove(map);
	if (alloc) {
		alloc->maps--;
		alloc_put(alloc);
	}
	if (pool)
		pool_freed(pool, size);
}

void memory_release_context(struct sim_ctx *ctx)
{
	for (size_t i = nmaps; i-- > 0;)
		if (maps[i]->ctx == ctx)
			memory_free(maps[i]);
}
