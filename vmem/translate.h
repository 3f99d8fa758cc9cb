/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSLATE_H
#define CUDAW_TRANSLATE_H
/*
 * translate: the other backing of vmem's addresses ("translated addressing"), for devices whose
 * driver cannot map memory where it is asked to, or on request.
 *
 * Virtual addresses are then addresses of the host that nothing is mapped at, and real memory comes
 * from cuMemAlloc(), wherever the driver has it. A table with the real address of each granule
 * translates; whoever hands a pointer to the driver has to ask it.
 *
 * To vmem and to the pause engine this is one more driver: translate_driver() puts functions of its
 * own into their table, which map and unmap as the real ones do, and translate the addresses of
 * copies. In vmem only mapping.c knows more: a mapping is one cuMemAlloc() as a whole, since kernels
 * run through it; it goes with its context; and kernels are given addresses around it.
 *
 * The granules before and behind a mapping are translated as well: an end belongs to it, and
 * kernels are given pointers from which they count from 1. vmem leaves a gap there (vmem_watch()).
 *
 * Locking: translate() takes none, translate_back() one of its own. The table of a mapping that is
 * in use does not change; who maps and unmaps is serialised by vmem.
 */
#include "vmem/driver.h"
#include "vmem/space.h"

#define TRANSLATE_BASE (VMEM_BASE - VMEM_GRANULE)
#define TRANSLATE_SIZE (SPACE_SIZE + VMEM_GRANULE)

/*
 * In the low bits of a granule's real address: that it is the one before or behind a mapping, and
 * whether a kernel was given an address there since the mapping was last taken into use: the
 * granule's first, as the end of a mapping is, or another one. The latter two stay while nothing is
 * mapped, as graphs have the address still.
 */
enum { TRANSLATE_GAP = 1, TRANSLATE_FIRST_GIVEN = 2, TRANSLATE_OTHER_GIVEN = 4 };
#define TRANSLATE_GIVEN ((CUdeviceptr)(TRANSLATE_FIRST_GIVEN | TRANSLATE_OTHER_GIVEN))
#define TRANSLATE_FLAGS (TRANSLATE_GAP | TRANSLATE_GIVEN)

struct translation {
	/* By granule; 0 but for the flags: nothing is there. NULL: addresses are real. */
	CUdeviceptr _Atomic *real;
	_Atomic unsigned int moves; /* of mappings that came back elsewhere */
};

extern struct translation translation;

/*
 * From now on translate: change @drv, which vmem is to be given then. Returns 0 or -ENOMEM. Makes
 * no driver call.
 */
int translate_driver(struct cuda_driver *drv);

/* No kernel was given an address around [@ptr, @ptr + @size), which comes into or out of use. */
void translate_forget_given(CUdeviceptr ptr, size_t size);

/* What was mapped at @ptr went with its context, which has freed it. */
void translate_forget(CUdeviceptr ptr, size_t size);

/*
 * The virtual address of what is at @real now; @real itself where that is in no mapping, as at the
 * end of one, where something else may begin. Takes a lock, which translate() does not.
 */
CUdeviceptr translate_back(CUdeviceptr real);

/*
 * The same of what a kernel was given, which may be outside of a mapping. *@unclear becomes true
 * where it is before it or beyond its end, as something else may be there, or where it may be of
 * two mappings. Whether what the driver alone knows of begins at the end is left to the caller.
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
	return atomic_load_explicit(&translation.real[translate_granule(ptr)],
				    memory_order_relaxed);
}

/* The real address for @ptr; @ptr itself where it is not vmem's, or no mapping is there or near. */
static inline CUdeviceptr translate(CUdeviceptr ptr)
{
	CUdeviceptr at;

	if (!translation.real || ptr - TRANSLATE_BASE >= TRANSLATE_SIZE)
		return ptr;
	at = translate_entry(ptr) & ~TRANSLATE_FLAGS;
	return at ? at + ptr % VMEM_GRANULE : ptr;
}

/* True where @ptr, which translate_back_given() found, is outside of its mapping. */
static inline bool translate_is_outside(CUdeviceptr ptr)
{
	return translate_entry(ptr) & TRANSLATE_GAP;
}

/* A kernel is given @ptr, which is in the gap of which @entry is known. */
void translate_note(CUdeviceptr ptr, CUdeviceptr entry);

/* The same for what a kernel is given, which may be outside of a mapping. Only while it is on. */
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
