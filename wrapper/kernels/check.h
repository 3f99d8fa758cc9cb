/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_CHECK_H
#define CUDAW_WRAPPER_CHECK_H
/*
 * check: finds wrong pointers in launches, copies and sets before the GPU sees them (CUDAW_CHECK).
 *
 * Only addresses in vmem's space are checked, so never host memory, nor memory left to the driver.
 * There is a gap behind every allocation (vmem_watch()), so an address belongs to one allocation
 * only.
 *
 *  - A copy or set must lie in one live allocation from its first to its last byte.
 *  - A kernel's parameter that is known to be a pointer must point into a live allocation, or right
 *    behind its end, as a pointer that is never followed may.
 *  - Any other eight bytes of a parameter that may be a pointer (aligned, in a struct, or in a
 *    parameter of unknown type) are wrong only if they point into an allocation that is remembered
 *    as freed.
 *
 * A wrong pointer is reported in one line. By default the call then fails if it is a copy or set, or
 * if the parameter is known to be a pointer and points into freed memory. In the other cases a valid
 * program may pass such a pointer and never follow it: cuSPARSE's csrmv passes one 121 bytes past
 * the end of an allocation, and a struct may hold an old pointer that the kernel does not use. These
 * calls fail at CHECK_STRICT only.
 *
 * A call that fails returns CUDA_ERROR_ILLEGAL_ADDRESS, as it would have on the GPU. But the context
 * stays usable. Pointers in device memory, the accesses of a kernel, and the nodes of graphs that were not
 * captured are not looked at.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Which calls with a wrong pointer fail. The others go on; all are reported. */
enum check_level {
	CHECK_WARNS, /* none */
	CHECK_FAILS, /* those that would certainly use wrong memory, or are given a freed pointer */
	CHECK_STRICT, /* all */
};

/* To be called first: check from now on. */
void check_start(enum check_level level);
extern bool check_is_on;

/*
 * Find the function that demangles names, if the program has loaded libstdc++. To be called
 * outside the gate: it takes the loader's lock, under which another thread may wait at the gate.
 */
void check_find_demangler(void);

/*
 * These are the functions that driver.words names under "check". Each looks at pointers that the
 * driver function @call is given, and returns the error with which it fails, or CUDA_SUCCESS. A
 * null pointer is left for the driver to refuse.
 */

/* The @bytes from @ptr on. @param is the name of the parameter, for the message. */
CUresult check_range(const char *call, const char *param, CUdeviceptr ptr, size_t bytes);

/* @height rows of @width bytes that begin @pitch bytes apart. */
CUresult check_rows(const char *call, const char *param, CUdeviceptr ptr, size_t pitch,
		    size_t width, size_t height);

/*
 * Bytes from the first to the last of @depth planes, @rows rows apart, of @height rows, @pitch
 * bytes apart, of @width bytes. SIZE_MAX: it is too large for a size_t.
 */
size_t check_extent(size_t pitch, size_t rows, size_t width, size_t height, size_t depth);

CUresult check_launch(const char *call, CUfunction function, void **params, void **extra);
CUresult check_launch_each(const char *call, const CUDA_LAUNCH_PARAMS *list, unsigned int count);
CUresult check_copy_2d(const char *call, const CUDA_MEMCPY2D_v2 *copy);
CUresult check_copy_3d(const char *call, const CUDA_MEMCPY3D_v2 *copy);
CUresult check_copy_3d_peer(const char *call, const CUDA_MEMCPY3D_PEER *copy);
CUresult check_copy_batch(const char *call, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
			  const size_t *sizes, size_t count);
/* If the other side is an array, its elements are taken for bytes, as their size is not known. */
CUresult check_copy_3d_batch(const char *call, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count);

#endif
