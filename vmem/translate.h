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
 * To the rest of vmem and to the pause engine this is one more driver: translate_driver() puts
 * functions of its own into their table, which map and unmap as the real ones do, and translate the
 * addresses of copies. A mapping is one cuMemAlloc() as a whole, since kernels run through it.
 *
 * The granule behind a mapping is translated as well, as an end belongs to it: vmem leaves a gap
 * there (vmem_watch()).
 *
 * Locking: translate() takes none, translate_back() one of its own. The table of a mapping that is
 * in use does not change; who maps and unmaps is serialised by vmem.
 */
#include "vmem/driver.h"
#include "vmem/space.h"

/* What is known of a granule as an end: of a mapping, or of one that a kernel was ever given. */
enum { TRANSLATE_NO_END, TRANSLATE_END, TRANSLATE_END_USED };

struct translation {
	CUdeviceptr _Atomic *real;   /* by granule; 0: nothing is there. NULL: addresses are real */
	_Atomic unsigned int moves;  /* of mappings that came back elsewhere */
	_Atomic unsigned char *ends; /* by granule */
};

extern struct translation translation;

/*
 * From now on translate: change @drv, which vmem is to be given then. Returns 0 or -ENOMEM. Makes
 * no driver call.
 */
int translate_driver(struct cuda_driver *drv);

/* What was mapped at @ptr went with its context, which has freed it. */
void translate_forget(CUdeviceptr ptr, size_t size);

/*
 * The virtual address of what is at @real now; @real itself where that is not vmem's. The end of a
 * mapping is vmem's if a kernel was given it; where another begins there it is the latter's. Takes
 * a lock, which translate() does not.
 */
CUdeviceptr translate_back(CUdeviceptr real);

/* A kernel is given @ptr, which may be the end of a mapping. */
static inline void translate_note_end(CUdeviceptr ptr)
{
	_Atomic unsigned char *end;

	if (ptr % VMEM_GRANULE || ptr - VMEM_BASE >= SPACE_SIZE)
		return;
	end = &translation.ends[(ptr - VMEM_BASE) / VMEM_GRANULE];
	if (atomic_load_explicit(end, memory_order_relaxed) == TRANSLATE_END)
		atomic_store_explicit(end, TRANSLATE_END_USED, memory_order_relaxed);
}

/* True where @real is the begin of one mapping and the end of another that a kernel was given. */
bool translate_is_unclear(CUdeviceptr real);

static inline bool translate_is_on(void)
{
	return translation.real != NULL;
}

/* The real address for @ptr; @ptr itself where it is not vmem's, or nothing is mapped there. */
static inline CUdeviceptr translate(CUdeviceptr ptr)
{
	CUdeviceptr at;

	if (!translation.real || ptr - VMEM_BASE >= SPACE_SIZE)
		return ptr;
	at = atomic_load_explicit(&translation.real[(ptr - VMEM_BASE) / VMEM_GRANULE],
				  memory_order_relaxed);
	return at ? at + ptr % VMEM_GRANULE : ptr;
}

#endif
