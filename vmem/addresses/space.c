/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/addresses/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_PREFIX "vmem: "
#include "common/log.h"

#define WINDOW   (1UL << 32) /* of addresses with the same upper half */
#define LEAD     (512UL << 20)
#define NPARTS   (sizeof(parts) / sizeof(parts[0]))
#define PART_MAX (parts[0].end - parts[0].start)

_Static_assert(VMEM_BASE % WINDOW == 0 && SPACE_SEGMENT_MIN % WINDOW == 0,
	       "a segment consists of windows");

/* The parts of a window that small allocations use if space is scattered, read as floats. */
static const struct {
	size_t start, end;
} parts[] = {
	{0x50000000, 0x7f000000}, /* 8.6e9 to 1.7e38 */
	{0x90000000, 0xb0000000}, /* -2.5e-29 to -4.7e-10 */
	{0xd0000000, 0xf0000000}, /* -8.6e9 to -1.6e29 */
};

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
		__atomic_store_n(&space->owners[i], owner, __ATOMIC_RELEASE);
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
	size_t reserved = __atomic_load_n(&space->reserved, __ATOMIC_SEQ_CST);
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
		/* A cause is RLIMIT_AS. The driver's allocator needs fewer addresses: it may still work. */
		space->refused = true;
		pr_err("cannot reserve %zu MiB of addresses at %#llx (ulimit -v?): driver error %d",
		       tried, hint, rc);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (start != hint) {
		drv->cuMemAddressFree(start, segment);
		space->refused = !space->nsegments;
		if (space->refused)
			pr_err("the driver reserves at %#llx instead of %#llx", start, hint);
		return space->refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
	}
	space->tight |= segment < SPACE_SEGMENT;
	space->segments[space->nsegments++] = start;
	runs_insert(space, start, segment);
	/* Publish last: from here on a lookup may read the table there. */
	__atomic_store_n(&space->reserved, reserved + segment, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

/* The lowest place for @size bytes, at or above @from, if space is scattered. */
static CUdeviceptr scattered_place(CUdeviceptr from, size_t size)
{
	CUdeviceptr window = from - from % WINDOW;

	for (; size <= PART_MAX; window += WINDOW)
		for (size_t i = 0; i < NPARTS; i++) {
			CUdeviceptr at = window + parts[i].start;

			if (at < from)
				at = from;
			if (at + size <= window + parts[i].end)
				return at;
		}
	return window + (window < from ? WINDOW : 0) + LEAD;
}

static bool is_for_large(const struct space *space, CUdeviceptr ptr)
{
	size_t i = space->nsegments;

	while (space->segments[--i] > ptr)
		;
	return space->for_large[i];
}

/* Whether @run contains [@at, @at + @size) and, for large sizes, the rest of its last window. */
static bool has_place(const struct space_run *run, CUdeviceptr at, size_t size, bool scattered)
{
	CUdeviceptr end = at + size;

	if (scattered && size > PART_MAX)
		end = (end + WINDOW - 1) / WINDOW * WINDOW;
	return end <= run->start + run->size;
}

/* The smallest free run with a place for @size bytes, with the place in *@place; or NULL. */
static struct space_run *best_fit(struct space *space, size_t size, bool scattered,
				  CUdeviceptr *place)
{
	struct space_run *best = NULL;

	for (struct space_run *r = space->runs; r < space->runs + space->nruns; r++) {
		CUdeviceptr at = r->start;

		if (r->size < size || (best && r->size >= best->size))
			continue;
		if (scattered && !space->tight && is_for_large(space, at) != (size > PART_MAX))
			continue;
		if (scattered)
			at = scattered_place(at, size);
		if (!has_place(r, at, size, scattered))
			continue;
		best = r;
		*place = at;
	}
	return best;
}

/* The same for scattered space; reserves one more segment if it needs one and can. */
static struct space_run *find_scattered(struct space *space, const struct cuda_driver *drv,
					size_t size, CUdeviceptr *place)
{
	struct space_run *run = best_fit(space, size, true, place);
	bool large = size > PART_MAX;
	size_t need = size + (large && space->nsegments ? LEAD : 0);

	if (run || space->full || need > SPACE_SEGMENT)
		return run;
	if (reserve(space, drv, need) == CUDA_SUCCESS) {
		space->for_large[space->nsegments - 1] = large;
	} else {
		space->tight = true;
		space->full = need <= SPACE_SEGMENT_MIN;
	}
	return best_fit(space, size, true, place);
}

/*
 * A granule comes from the end of the last run that has one. So slabs are neighbours, whatever is
 * allocated in between, and a resume can map several of them at once.
 */
static struct space_run *last_granule(struct space *space, CUdeviceptr *place)
{
	struct space_run *run = space->runs + space->nruns - 1;

	if (!space->nruns)
		return NULL;
	*place = run->start + run->size - VMEM_GRANULE;
	return run;
}

/* The smallest free run with a place for @size bytes, or the last for a granule, or NULL. */
static struct space_run *find_free(struct space *space, size_t size, CUdeviceptr *place)
{
	return size == VMEM_GRANULE ? last_granule(space, place)
				    : best_fit(space, size, false, place);
}

/* The same for both kinds of space; if there is no such run, *@rc has the reason. */
static struct space_run *find_run(struct space *space, const struct cuda_driver *drv, size_t size,
				  CUdeviceptr *place, CUresult *rc)
{
	struct space_run *run = space->scattered ? find_scattered(space, drv, size, place) : NULL;

	if (!run)
		run = find_free(space, size, place);
	if (run)
		return run;
	*rc = reserve(space, drv, size);
	return *rc == CUDA_SUCCESS ? find_free(space, size, place) : NULL;
}

/* Take [@start, @start + @size) out of @run. */
static void runs_take(struct space *space, struct space_run *run, CUdeviceptr start, size_t size)
{
	struct space_run *end = space->runs + space->nruns;
	size_t before = start - run->start, behind = run->size - before - size;

	if (before && behind) {
		assert(space->nruns < space->max_runs);
		memmove(run + 1, run, (size_t)(end - run) * sizeof(*run));
		space->nruns++;
		run[1] = (struct space_run){start + size, behind};
	} else if (behind) {
		run->start += size;
	} else if (!before) {
		memmove(run, run + 1, (size_t)(end - run - 1) * sizeof(*run));
		space->nruns--;
	}
	if (before || behind)
		run->size = before ? before : behind;
}

CUresult space_alloc(struct space *space, const struct cuda_driver *drv, size_t size, void *owner,
		     CUdeviceptr *start)
{
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
	struct space_run *run;

	if (runs_make_room(space))
		return rc;
	run = find_run(space, drv, size, start, &rc);
	if (!run)
		return rc;
	runs_take(space, run, *start, size);
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
	CUdeviceptr end = VMEM_BASE + __atomic_load_n(&space->reserved, __ATOMIC_SEQ_CST);
	size_t i = runs_below(space, from + 1);

	/* Start behind the free run that contains @from, if any, and skip the runs that follow. */
	if (i > 0 && from < space->runs[i - 1].start + space->runs[i - 1].size)
		from = space->runs[i - 1].start + space->runs[i - 1].size;
	while (i < space->nruns && space->runs[i].start == from)
		from += space->runs[i++].size;
	return from < end ? space_find(space, from) : NULL;
}
