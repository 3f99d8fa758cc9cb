/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_COPIES_H
#define CUDAW_WRAPPER_COPIES_H
/*
 * copies: room for the copies that one driver call needs of structs and arrays of the program,
 * which cudaw never changes. The room is on the caller's stack, enough for the parameters of most
 * launches. Whatever does not fit there is on the heap, as the stack of a thread may be as small as
 * 16 KiB, and the driver needs its part.
 */
#include <cuda.h>
#include <stdalign.h>
#include <stddef.h>

#define COPIES_STACK     2048
#define COPIES_BATCH_MAX 4096 /* elements of an array */

struct copies_block {
	alignas(16) struct copies_block *next;
	alignas(16) char room[];
};

struct copies {
	struct copies_block *heap;
	size_t used; /* of stack, a multiple of 16 */
	alignas(16) char stack[COPIES_STACK];
};

static inline void copies_init(struct copies *copies)
{
	copies->heap = NULL;
	copies->used = 0;
}

/* @bytes, aligned to 16, until copies_free(); NULL: there is no host memory. */
void *copies_room(struct copies *copies, size_t bytes);

/* A copy of the @bytes at @from. NULL: @from is NULL, or there is no host memory. */
void *copies_take(struct copies *copies, const void *from, size_t bytes);

/*
 * A copy of the @count elements of @size bytes at @array. NULL, with *@result the result of the
 * driver call: the array is empty, which is no error, or too long, or there is no host memory.
 */
void *copies_take_array(struct copies *copies, const void *array, size_t count, size_t size,
			CUresult *result);

void copies_free(struct copies *copies);

#endif
