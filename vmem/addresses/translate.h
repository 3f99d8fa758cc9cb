/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSLATE_H
#define CUDAW_TRANSLATE_H
/*
 * translate: the other backing of vmem's addresses ("translated addressing"), on request and for
 * devices whose driver cannot map memory at given addresses.
 *
 * Virtual addresses are then host addresses with nothing mapped, and real memory comes from
 * cuMemAlloc(), at addresses that the driver chooses. A table has the real address of each granule;
 * code that hands a pointer to the driver must translate it first.
 *
 * To vmem and to the pause engine this is one more driver: translate_driver() puts functions of its
 * own into their table, which map and unmap as the real ones do, and translate the addresses of
 * copies. In vmem only mapping.c knows more: a mapping is one cuMemAlloc() as a whole, since
 * kernels run through it; it goes with its context; and kernels are given addresses around it.
 *
 * The granules before and behind a mapping are translated too: programs use the address of a
 * mapping's end, and give kernels pointers from which they count from 1. vmem leaves a gap there
 * (vmem_watch()).
 *
 * Locking: translate() takes no lock, translate_back() a lock of its own. The table's entries of a
 * mapping in use do not change; vmem serialises mapping and unmapping.
 */
#include "vmem/cuda_driver.h"
#include "vmem/addresses/space.h"

#define TRANSLATE_BASE (VMEM_BASE - VMEM_GRANULE)
#define TRANSLATE_SIZE (SPACE_SIZE + VMEM_GRANULE)

/*
 * Flags in the low bits of a granule's real address: the granule is the gap before or behind a
 * mapping; and a kernel was given an address in the gap since the mapping was last taken into use:
 * its first address, which is the end of a mapping, or another one. The latter two stay while
 * nothing is mapped, since graphs still have the address.
 */
enum { TRANSLATE_GAP = 1, TRANSLATE_FIRST_GIVEN = 2, TRANSLATE_OTHER_GIVEN = 4 };
#define TRANSLATE_GIVEN ((CUdeviceptr)(TRANSLATE_FIRST_GIVEN | TRANSLATE_OTHER_GIVEN))
#define TRANSLATE_FLAGS (TRANSLATE_GAP | TRANSLATE_GIVEN)

struct translation {
	/* By granule; 0 apart from the flags: nothing is there. NULL: addresses are real. */
	CUdeviceptr *real;
	unsigned int moves; /* mappings that came back at another address */
};

extern struct translation translation;

/*
 * Translate from now on: put our functions into @drv, before vmem_init() gets it. Returns 0 or
 * -ENOMEM. Makes no driver call.
 */
int translate_driver(struct cuda_driver *drv);

/* [@ptr, @ptr + @size) comes into or out of use: forget which addresses around it kernels had. */
void translate_forget_given(CUdeviceptr ptr, size_t size);

/* The context of the memory mapped at @ptr is gone, and freed it. */
void translate_forget(CUdeviceptr ptr, size_t size);

/*
 * The virtual address for @real; @real itself if it is in no mapping. The end of a mapping is in
 * none, since other memory may begin there. Takes a lock, which translate() does not.
 */
CUdeviceptr translate_back(CUdeviceptr real);

/*
 * The same for an address that a kernel was given, which may be outside its mapping. *@unclear
 * becomes true if it is before the mapping or beyond its end, as other memory may be there, or if
 * it may belong to two mappings. The caller has to find out whether memory that only the driver
 * knows begins at the end.
 */
CUdeviceptr translate_back_given(CUdeviceptr real, bool *unclear);

static inline size_t translate_granule(CUdeviceptr ptr)
{
	return (ptr - TRANSLATE_BASE) / VMEM_GRANULE;
}

static inline bool translate_is_on(void)
{
	return translation.real != NULL;
}

static inline CUdeviceptr translate_entry(CUdeviceptr ptr)
{
	return __atomic_load_n(&translation.real[translate_granule(ptr)], __ATOMIC_RELAXED);
}

/* The real address for @ptr; @ptr itself if it is not vmem's, or no mapping is there or near. */
static inline CUdeviceptr translate(CUdeviceptr ptr)
{
	CUdeviceptr at;

	if (!translation.real || ptr - TRANSLATE_BASE >= TRANSLATE_SIZE)
		return ptr;
	at = translate_entry(ptr) & ~TRANSLATE_FLAGS;
	return at ? at + ptr % VMEM_GRANULE : ptr;
}

/* True if @ptr, which translate_back_given() found, is outside its mapping. */
static inline bool translate_is_outside(CUdeviceptr ptr)
{
	return translate_entry(ptr) & TRANSLATE_GAP;
}

/* Record that a kernel is given @ptr, in the gap with this @entry. */
void translate_note(CUdeviceptr ptr, CUdeviceptr entry);

/* The same for an address that a kernel is given, maybe outside a mapping. Only while it is on. */
static inline CUdeviceptr translate_given(CUdeviceptr ptr)
{
	CUdeviceptr entry, at;

	if (ptr - TRANSLATE_BASE >= TRANSLATE_SIZE)
		return ptr;
	entry = translate_entry(ptr);
	if (entry & TRANSLATE_GAP)
		translate_note(ptr, entry);
	at = entry & ~TRANSLATE_FLAGS;
	return at ? at + ptr % VMEM_GRANULE : ptr;
}

#endif
