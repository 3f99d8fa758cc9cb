/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ALLOCATING_H
#define CUDAW_ALLOCATING_H
/* For tests of vmem over a driver that keeps books instead of memory (fake_driver.h). */
#include "tests/check_suite.h"
#include "tests/unit/fake_driver.h"

#define KB (1UL << 10)
#define MB (1UL << 20)
#define GB (1UL << 30)

#define CTX1 ((CUcontext)0x1000)
#define CTX2 ((CUcontext)0x2000)
#define CTX3 ((CUcontext)0x3000)
#define CTX4 ((CUcontext)0x4000)

#define OK(call) ck_assert_int_eq(call, CUDA_SUCCESS)

static inline void setup(void)
{
	ck_assert_int_eq(vmem_init(&fake_driver), 0);
}

static inline CUdeviceptr alloc_on(CUcontext ctx, CUdevice dev, size_t size)
{
	CUdeviceptr ptr;

	OK(vmem_alloc(ctx, dev, size, &ptr, NULL));
	return ptr;
}

static inline CUdeviceptr alloc(size_t size)
{
	return alloc_on(CTX1, 0, size);
}

static inline void check_info(CUdeviceptr at, CUdeviceptr start, size_t size, CUcontext ctx,
			      CUdevice dev)
{
	struct vmem_info info;

	ck_assert(vmem_lookup(at, &info));
	ck_assert_uint_eq(info.start, start);
	ck_assert_uint_eq(info.size, size);
	ck_assert_ptr_eq(info.ctx, ctx);
	ck_assert_int_eq(info.dev, dev);
	ck_assert_uint_gt(info.id, 0);
}

static inline void check_none(CUdeviceptr at)
{
	struct vmem_info info;

	ck_assert(!vmem_lookup(at, &info));
}

static inline void check_stats(size_t carried, size_t mapped, size_t cached, size_t nalloc)
{
	struct vmem_stats st;

	vmem_get_stats(&st);
	ck_assert_uint_eq(st.carried, carried);
	ck_assert_uint_eq(st.mapped, mapped);
	ck_assert_uint_eq(st.cached, cached);
	ck_assert_uint_eq(st.nalloc, nalloc);
	ck_assert_uint_eq(fake.used[0] + fake.used[1], mapped);
}

#endif
