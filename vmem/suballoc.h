/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SUBALLOC_H
#define CUDAW_SUBALLOC_H
/*
 * suballoc: cuts slabs of address space into small allocations. It makes no CUDA call and never
 * touches the memory that it hands out: its records lie in host memory.
 *
 * A slab is split into units of 512 bytes, and has a record for each unit. A block is a run of
 * units; the record of its first unit describes it, those of the others are unused:
 *
 *	units   |0      |1      |2      |3      |4      |5      |6      |7
 *	blocks  | allocated     | free                  | allocated     | free
 *	heads   |1      |0      |0      |0      |0      |1      |0      |0
 *
 * `heads` has a bit for each unit at which an allocation starts, or a kept block (suballoc_keep()). It
 * tells these from free ones, and lets an interior pointer find its allocation by looking for the
 * nearest bit below.
 *
 * Free blocks of all slabs of one suballoc hang in bins by size, as in TLSF: exact up to 15 units,
 * then 16 bins to a power of two. A request takes a block of its own bin if one of the first few is
 * large enough, as one is that an allocation of this size has left. Otherwise it takes the first
 * block of the bins above, where every block is large enough. So both allocating and freeing
 * (neighbours merge at once) take a bounded number of steps.
 *
 * Locking: the caller serialises everything of one suballoc except slab_lookup() and
 * slab_overlaps(), which may run at any time: suballoc_remove() keeps a slab's records for the next
 * slab of its size, and never unmaps them. The records that are kept have a lock of their own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUBALLOC_UNIT  512UL
#define SLAB_MIN       (2UL << 20)
#define SLAB_MAX       (32UL << 20)
#define SLAB_UNITS     (SLAB_MAX / SUBALLOC_UNIT)
#define SUBALLOC_NBINS 224 /* the bin of SLAB_UNITS is the first of the last group of 16 */

struct slab;
struct block;

struct suballoc {
	uint64_t nonempty[(SUBALLOC_NBINS + 63) / 64]; /* a bit for each bin */
	struct block *bins[SUBALLOC_NBINS];
	size_t gap; /* bytes left free behind each allocation, at least: 0 or 1 */
};

/* One live allocation. */
struct suballoc_info {
	uint64_t offset; /* from the start of the slab */
	size_t size;     /* as asked for */
	uint64_t id;
};

/*
 * Let @sa allocate from [@start, @start + @size), @size a power of two from SLAB_MIN to SLAB_MAX.
 * Returns the new slab; NULL and errno if host memory is short.
 */
struct slab *suballoc_add(struct suballoc *sa, uint64_t start, size_t size);

/* Take @slab out of @sa, with the allocations that still live in it. */
void suballoc_remove(struct suballoc *sa, struct slab *slab);

/*
 * Allocate @size bytes, 1 to SLAB_MAX, and remember @id. Returns the slab that they are in and the
 * address in *@addr; NULL if no slab has room. A slab just added, of a power of two of at least
 * @size bytes and the gap, always has room. The first function may miss a block that is hardly
 * large enough, behind others that are not; the second looks at all blocks of that bin.
 */
struct slab *suballoc_alloc(struct suballoc *sa, size_t size, uint64_t id, uint64_t *addr);
struct slab *suballoc_alloc_any(struct suballoc *sa, size_t size, uint64_t id, uint64_t *addr);

/*
 * Free the allocation of @slab that starts at @addr. Returns the size that was asked for; 0 if no
 * live allocation starts there.
 */
size_t suballoc_free(struct suballoc *sa, struct slab *slab, uint64_t addr);

/*
 * Keep the block of the allocation that starts at @addr for later ones: the allocation lives no more,
 * and the block is not free. Returns the size that was asked for; 0 if no live allocation starts
 * there.
 */
size_t suballoc_keep(struct slab *slab, uint64_t addr);

/* A new allocation in a kept block, whose room is enough. False: no kept block starts there. */
bool suballoc_reuse(const struct suballoc *sa, struct slab *slab, uint64_t addr, size_t size,
		    uint64_t id);

/* How many bytes an allocation in the block at @addr may have, which is live or kept; else 0. */
size_t suballoc_room(const struct suballoc *sa, const struct slab *slab, uint64_t addr);

/* How many allocations live in @slab; *@bytes, if not NULL, becomes the sum of their sizes. */
size_t slab_live(const struct slab *slab, size_t *bytes);

/* True if @slab has neither a live allocation nor a kept block. */
bool slab_is_free(const struct slab *slab);

/* Describe the live allocation that @offset points into; false if there is none. No lock. */
bool slab_lookup(const struct slab *slab, uint64_t offset, struct suballoc_info *info);

/*
 * True if a live allocation has a part in [@offset, @offset + @size), both multiples of 64
 * units. No lock.
 */
bool slab_overlaps(const struct slab *slab, uint64_t offset, size_t size);

#endif
