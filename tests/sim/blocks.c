/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of 2 MiB that small allocations of a context share. A block goes back when it is empty
 * [H200, driver 580.159]. These are books only: the bytes of an allocation lie elsewhere.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define UNIT  512
#define UNITS (SIM_GRANULARITY / UNIT)

struct sim_block {
	struct sim_block *next;
	size_t live; /* units */
	bool taken[UNITS];
};

static size_t units_of(const struct sim_alloc *alloc)
{
	return SIM_ROUND(alloc->size, UNIT) / UNIT;
}

/* The first of @units free ones in a row; UNITS if there are not so many. */
static size_t find_units(const struct sim_block *block, size_t units)
{
	size_t run = 0;

	if (UNITS - block->live < units)
		return UNITS;
	for (size_t i = 0; i < UNITS; i++) {
		run = block->taken[i] ? 0 : run + 1;
		if (run == units)
			return i + 1 - units;
	}
	return UNITS;
}

static struct sim_block *block_new(struct sim_ctx *ctx)
{
	struct sim_block *block = calloc(1, sizeof(*block));

	if (!block || !account_charge(ctx->dev, SIM_GRANULARITY)) {
		free(block);
		return NULL;
	}
	block->next = ctx->blocks;
	ctx->blocks = block;
	return block;
}

bool block_take(struct sim_alloc *alloc)
{
	size_t units = units_of(alloc), first = UNITS;
	struct sim_block *block;

	for (block = alloc->small->blocks; block; block = block->next) {
		first = find_units(block, units);
		if (first < UNITS)
			break;
	}
	if (!block) {
		block = block_new(alloc->small);
		first = 0;
	}
	if (!block)
		return false;
	memset(&block->taken[first], true, units);
	block->live += units;
	alloc->block = block;
	alloc->first_unit = first;
	return true;
}

void block_give(const struct sim_alloc *alloc)
{
	struct sim_block *block = alloc->block, **p = &alloc->small->blocks;

	memset(&block->taken[alloc->first_unit], false, units_of(alloc));
	block->live -= units_of(alloc);
	if (block->live)
		return;
	while (*p != block)
		p = &(*p)->next;
	*p = block->next;
	account_release(alloc->dev, SIM_GRANULARITY);
	free(block);
}

size_t block_offset(const struct sim_alloc *alloc)
{
	return alloc->first_unit * UNIT;
}

size_t blocks_bytes(const struct sim_ctx *ctx)
{
	size_t bytes = 0;

	for (const struct sim_block *block = ctx->blocks; block; block = block->next)
		bytes += SIM_GRANULARITY;
	return bytes;
}
