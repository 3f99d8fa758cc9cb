/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_PREFIX "vmem: "
#include "vmem/log.h"

int space_init(struct space *space)
{
	size_t bytes = SPACE_SIZE / VMEM_GRANULE * sizeof(*space->owners);
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -ENOMEM;
	memset(space, 0, sizeof(*space));
	space->owners = mem;
	return 0;
}

static void set_owner(struct space *space, CUdeviceptr start, size_t size, void *owner)
{
	size_t first = (start - VMEM_BASE) / VMEM_GRANULE;

	for (size_t i = first; i < first + size / VMEM_GRANULE; i++)
		atomic_store_explicit(&space->owners[i], owner, memory_order_release);
}

/* The number of free runs that start below @ptr. */
static size_t runs_below(const struct space *space, CUdeviceptr ptr)
{
	size_t low = 0, high = space->nruns;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (space->runs[mid].start < ptr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Mappings must not span reservations, so free runs of two segments stay apart. */
static bool starts_segment(const struct space *space, CUdeviceptr ptr)
{
	for (size_t i = 0; i < space->nsegments; i++)
		if (space->segments[i] == ptr)
			return true;
	return false;
}

/*
 * Between two free runs lies something owned or the start of a segment: with room for that many,
 * space_free() never has to allocate, and so cannot fail.
 */
static int runs_make_room(struct space *space)
{
	size_t need = space->nowned + 1 + SPACE_MAX_SEGMENT;
	struct space_run *runs;

	if (need <= space->max_runs)
		return 0;
	runs = realloc(space->runs, 2 * need * sizeof(*runs));
	if (!runs)
		return -ENOMEM;
	space->runs = runs;
	space->max_runs = 2 * need;
	return 0;
}

static void runs_insert(struct space *space, CUdeviceptr start, size_t size)
{
	size_t i = runs_below(space, start);
	struct space_run *r = &space->runs[i];
	bool joins_prev =
		i > 0 && r[-1].start + r[-1].size == start && !starts_segment(space, start);
	bool joins_next =
		i < space->nruns && start + size == r->start && !starts_segment(space, r->start);

	if (joins_prev && joins_next) {
		r[-1].size += size + r->size;
		memmove(r, r + 1, (--space->nruns - i) * sizeof(*r));
	} else if (joins_prev) {
		r[-1].size += size;
	} else if (joins_next) {
		r->start = start;
		r->size += size;
	} else {
		assert(space->nruns < space->max_runs);
		memmove(r + 1, r, (space->nruns++ - i) * sizeof(*r));
		*r = (struct space_run){start, size};
	}
}

/* Reserve one more segment, large enough for @size. */
static CUresult reserve(struct space *space, const struct cuda_driver *drv, size_t size)
{
	size_t reserved = atomic_load(&space->reserved);
	CUdeviceptr hint = VMEM_BASE + reserved;
	CUdeviceptr start = 0;
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
	size_t segment;

	if (space->refused)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (space->nsegments == SPACE_MAX_SEGMENT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (segment = SPACE_SEGMENT; segment >= SPACE_SEGMENT_MIN && segment >= size;
	     segment /= 2) {
		rc = drv->cuMemAddressReserve(&start, segment, 0, hint, 0);
		if (rc == CUDA_SUCCESS)
			break;
	}
	if (rc != CUDA_SUCCESS) {
		size_t tried = (size > SPACE_SEGMENT_MIN ? size : SPACE_SEGMENT_MIN) >> 20;

		if (space->nsegments || size > SPACE_SEGMENT) {
			pr_warn("cannot reserve %zu MiB of addresses at %#llx: driver error %d",
				tried, hint, rc);
			return rc;
		}
		/* RLIMIT_AS, say: the real allocator may still have memory, as it needs less. */
		space->refused = true;
		pr_err("cannot reserve %zu MiB of addresses at %#llx (ulimit -v?): driver error %d",
		       tried, hint, rc);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (start != hint) {
		drv->cuMemAddressFree(start, segment);
		space->refused = true;
		pr_err("the driver reserves at %#llx instead of %#llx", start, hint);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	space->segments[space->nsegments++] = start;
	runs_insert(space, start, segment);
	/* Publish last: from here on a lookup may read the table there. */
	atomic_store(&space->reserved, reserved + segment);
	return CUDA_SUCCESS;
}

static struct space_run *best_fit(struct space *space, size_t size)
{
	struct space_run *best = NULL;

	for (struct space_run *r = space->runs; r < space->runs + space->nruns; r++)
		if (r->size >= size && (!best || r->size < best->size))
			best = r;
	return best;
}

CUresult space_alloc(struct space *space, const struct cuda_driver *drv, size_t size, void *owner,
		     CUdeviceptr *start)
{
	struct space_run *run;

	if (runs_make_room(space))
		return CUDA_ERROR_OUT_OF_MEMORY;
	run = best_fit(space, size);
	if (!run) {
		CUresult rc = reserve(space, drv, size);

		if (rc != CUDA_SUCCESS)
			return rc;
		run = best_fit(space, size);
	}
	*start = run->start;
	run->start += size;
	run->size -= size;
	if (!run->size)
		memmove(run, run + 1, (size_t)(space->runs + --space->nruns - run) * sizeof(*run));
	space->nowned++;
	set_owner(space, *start, size, owner);
	return CUDA_SUCCESS;
}

void space_free(struct space *space, CUdeviceptr start, size_t size)
{
	set_owner(space, start, size, NULL);
	space->nowned--;
	runs_insert(space, start, size);
}

void *space_next(const struct space *space, CUdeviceptr from)
{
	CUdeviceptr end = VMEM_BASE + atomic_load(&space->reserved);
	size_t i = runs_below(space, from + 1);

	/* Start behind the free run that @from lies in, if any, and skip those that follow. */
	if (i > 0 && from < space->runs[i - 1].start + space->runs[i - 1].size)
		from = space->runs[i - 1].start + space->runs[i - 1].size;
	while (i < space->nruns && space->runs[i].start == from)
		from += space->runs[i++].size;
	return from < end ? space_find(space, from) : NULL;
}
