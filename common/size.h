/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIZE_H
#define CUDAW_SIZE_H
/* Sizes: those that settings name, and reckoning with them. */
#include <stdbool.h>
#include <stddef.h>

/*
 * A number of bytes with an optional K, M, G or T, small or capital; false, and *@size untouched, for anything else,
 * or for more than a size_t holds.
 */
bool size_parse(const char *text, size_t *size);

static inline size_t size_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t size_max(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* @a less @b, or nothing. */
static inline size_t size_less(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

#endif
