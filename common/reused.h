/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REUSED_H
#define CUDAW_REUSED_H
/*
 * Objects that are not freed but used again: slots of a table, and objects of which some members are read
 * without a lock. Nobody may look at the other members, those in [@start, @end), between the two calls; a build with
 * ASan (make SANITIZE=address) reports who does. From the second call on they are zero.
 */
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size)   ((void)(start), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#endif

static inline void reused_rests(void *start, void *end)
{
	ASAN_POISON_MEMORY_REGION(start, (size_t)((char *)end - (char *)start));
}

static inline void reused_begins(void *start, void *end)
{
	size_t size = (size_t)((char *)end - (char *)start);

	ASAN_UNPOISON_MEMORY_REGION(start, size);
	memset(start, 0, size);
}

#endif
