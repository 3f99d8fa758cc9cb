/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of the simulated devices. This file is built without sanitizers, and calls no
 * function that TSan intercepts unless source and destination overlap: TSan takes ten times as long
 * over the bytes as the copy itself.
 */
#include "tests/sim/sim.h"

#include <string.h>

#ifdef __x86_64__
static void copy(void *dst, const void *src, size_t size)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(size) : : "memory");
}

void bulk_fill(void *dst, uint32_t value, unsigned int width, size_t count)
{
	if (width == 1)
		__asm__ volatile("rep stosb" : "+D"(dst), "+c"(count) : "a"(value) : "memory");
	else if (width == 2)
		__asm__ volatile("rep stosw" : "+D"(dst), "+c"(count) : "a"(value) : "memory");
	else
		__asm__ volatile("rep stosl" : "+D"(dst), "+c"(count) : "a"(value) : "memory");
}
#else
static void copy(void *dst, const void *src, size_t size)
{
	memcpy(dst, src, size);
}

void bulk_fill(void *dst, uint32_t value, unsigned int width, size_t count)
{
	for (size_t i = 0; i < count; i++)
		memcpy((char *)dst + i * width, &value,
		       width); /* the first bytes are the low ones */
}
#endif

void bulk_copy(void *dst, const void *src, size_t size)
{
	if ((char *)dst < (const char *)src + size && (const char *)src < (char *)dst + size)
		memmove(dst, src, size);
	else
		copy(dst, src, size);
}
