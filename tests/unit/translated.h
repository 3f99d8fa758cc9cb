/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRANSLATED_H
#define CUDAW_TRANSLATED_H
/* Translated addressing, over a driver whose memory has an address of the test's choice. */
#include "tests/check_suite.h"
#include "vmem/addresses/translate.h"
#include "vmem/vmem.h"

#define MB  (1UL << 20)
#define CTX ((CUcontext)0x1000)

static CUdeviceptr next_real = 0x7f0000000000; /* of the next allocation */
static unsigned int nalloc, nfree;
static CUdeviceptr freed, copied;
static struct cuda_driver drv;

static CUresult mem_alloc(CUdeviceptr *ptr, size_t size)
{
	(void)size;
	nalloc++;
	*ptr = next_real;
	return CUDA_SUCCESS;
}

static CUresult mem_free(CUdeviceptr ptr)
{
	nfree++;
	freed = ptr;
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *free, size_t *total)
{
	*free = *total = SIZE_MAX;
	return CUDA_SUCCESS;
}

/* There is no virtual memory management. */
static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	(void)attribute;
	(void)dev;
	*value = 0;
	return CUDA_SUCCESS;
}

static CUresult copy_out(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	(void)dst;
	(void)size;
	(void)stream;
	copied = src;
	return CUDA_SUCCESS;
}

static void setup(void)
{
	drv = (struct cuda_driver){.cuMemAlloc_v2 = mem_alloc,
				   .cuMemFree_v2 = mem_free,
				   .cuMemGetInfo_v2 = get_info,
				   .cuDeviceGetAttribute = get_attribute,
				   .cuMemcpyDtoHAsync_v2 = copy_out};
	ck_assert(!translate_is_on());
	ck_assert_uint_eq(translate(VMEM_BASE), VMEM_BASE);
	ck_assert_int_eq(translate_driver(&drv), 0);
	ck_assert_int_eq(vmem_init(&drv), 0);
	vmem_watch();
}

static CUdeviceptr alloc_at(CUdeviceptr at, size_t size)
{
	CUdeviceptr ptr;

	next_real = at;
	ck_assert_int_eq(vmem_alloc(CTX, 0, size, &ptr, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(ptr - VMEM_BASE < SPACE_SIZE, 1);
	return ptr;
}

#endif
