/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/copies.h"

#include <stdlib.h>
#include <string.h>

void *copies_room(struct copies *copies, size_t bytes)
{
	char *stack = copies->stack + copies->used;
	struct copies_block *block;

	if (bytes <= COPIES_STACK - copies->used) {
		copies->used += (bytes + 15) & ~15UL;
		return stack;
	}
	block = malloc(sizeof(*block) + bytes);
	if (!block)
		return NULL;
	block->next = copies->heap;
	copies->heap = block;
	return block->room;
}

void *copies_take(struct copies *copies, const void *from, size_t bytes)
{
	void *room = from ? copies_room(copies, bytes) : NULL;

	return room ? memcpy(room, from, bytes) : NULL;
}

void *copies_take_array(struct copies *copies, const void *array, size_t count, size_t size,
			CUresult *result)
{
	void *copy;

	*result = CUDA_SUCCESS;
	if (!array || !count)
		return NULL;
	if (count > COPIES_BATCH_MAX) {
		*result = CUDA_ERROR_NOT_SUPPORTED;
		return NULL;
	}
	copy = copies_take(copies, array, count * size);
	if (!copy)
		*result = CUDA_ERROR_OUT_OF_MEMORY;
	return copy;
}

void copies_free(struct copies *copies)
{
	struct copies_block *block, *next;

	for (block = copies->heap; block; block = next) {
		next = block->next;
		free(block);
	}
}
