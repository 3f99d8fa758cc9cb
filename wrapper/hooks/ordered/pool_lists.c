/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/pool_lists.h"
#include "vmem/vmem.h"

#include <utlist.h>

#define UNIT      512
#define SPLIT_LOG 4
#define SPLIT     (1U << SPLIT_LOG)
#define UNITS_MAX ((1UL << 29) - 1)
#define PATIENCE  16 /* with blocks of a bin that do not fit */

/* Of blocks with @room. */
static unsigned int bin_of(size_t room)
{
	size_t units = room / UNIT;
	unsigned int log;

	if (units < SPLIT)
		return (unsigned int)units;
	if (units > UNITS_MAX)
		units = UNITS_MAX;
	log = 63 - (unsigned int)__builtin_clzl(units);
	return (log - SPLIT_LOG + 1) * SPLIT +
	       (unsigned int)(units >> (log - SPLIT_LOG) & (SPLIT - 1));
}
_Static_assert((28 - SPLIT_LOG + 2) * SPLIT <= POOL_BINS, "there is a bin for UNITS_MAX");

void pool_list_put(struct pool_list *list, struct pool_block *b)
{
	struct pool_block *first = list->first, *behind = first ? first->prev : NULL;

	while (behind && behind->serial > b->serial)
		behind = behind == first ? NULL : behind->prev;
	b->list = list;
	DL_APPEND_ELEM(list->first, behind, b);
	DL_PREPEND2(list->bins[bin_of(b->room)], b, before, more);
}

void pool_list_remove(struct pool_block *b)
{
	struct pool_list *list = b->list;

	DL_DELETE(list->first, b);
	DL_DELETE2(list->bins[bin_of(b->room)], b, before, more);
	b->list = NULL;
}

/* In @bin, of which some are looked at. */
static struct pool_block *find_in(const struct pool_list *list, unsigned int bin, size_t size,
				  uint64_t serial)
{
	unsigned int patience = PATIENCE;

	for (struct pool_block *b = list->bins[bin]; b && patience; b = b->more, patience--)
		if (b->room >= size && b->serial <= serial)
			return b;
	return NULL;
}

struct pool_block *pool_list_find_by(const struct pool_list *list, size_t size, uint64_t serial)
{
	unsigned int bin = bin_of(vmem_room_for(size));
	struct pool_block *b = find_in(list, bin, size, serial);

	return b || bin < SPLIT || bin + 1 == POOL_BINS ? b : find_in(list, bin + 1, size, serial);
}

struct pool_block *pool_list_find(const struct pool_list *list, size_t size)
{
	return pool_list_find_by(list, size, UINT64_MAX);
}

struct pool_block *pool_list_find_any(const struct pool_list *list, size_t size)
{
	struct pool_block *b;

	for (unsigned int bin = bin_of(vmem_room_for(size)); bin < POOL_BINS; bin++)
		for (b = list->bins[bin]; b; b = b->more)
			if (b->room >= size)
				return b;
	return NULL;
}
