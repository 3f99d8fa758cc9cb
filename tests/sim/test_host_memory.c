/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory of cuMemCreate(), and registered host memory, as an H200 has them [driver 580.159]. */
#include "tests/check_suite.h"
#include "tests/sim/testing.h"

#include <unistd.h>

#define SIZE     (4 * MIB)
#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define RW       CU_MEM_ACCESS_FLAGS_PROT_READWRITE

static const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
			   node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
			   no_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 5},
			   host = {CU_MEM_LOCATION_TYPE_HOST, 0};

static CUmemAllocationProp host_prop(CUmemLocation location, unsigned int types)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = (CUmemAllocationHandleType)types,
				     .location = location};
}

static CUresult create(CUmemLocation location, unsigned int types, size_t size,
		       CUmemGenericAllocationHandle *handle)
{
	CUmemAllocationProp prop = host_prop(location, types);

	return cu.cuMemCreate(handle, size, &prop, 0);
}

static CUresult give(CUdeviceptr at, size_t size, CUmemLocation location, CUmemAccess_flags flags)
{
	CUmemAccessDesc desc = {location, flags};

	return cu.cuMemSetAccess(at, size, &desc, 1);
}

static unsigned long long access_at(CUdeviceptr at, CUmemLocation location)
{
	unsigned long long flags = 99;

	ok(cu.cuMemGetAccess(&flags, &location, at));
	return flags;
}

START_TEST(test_what_is_created)
{
	const CUmemLocation wrong[] = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 99},
				       {CU_MEM_LOCATION_TYPE_HOST_NUMA, -1},
				       {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0},
				       {CU_MEM_LOCATION_TYPE_HOST, 0}};
	CUmemGenericAllocationHandle handle;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		fails(create(wrong[i], POSIX_FD, SIZE, &handle), CUDA_ERROR_INVALID_VALUE);
	fails(create(node, POSIX_FD, 0, &handle), CUDA_ERROR_INVALID_VALUE);
	fails(create(node, POSIX_FD, SIZE + 4096, &handle), CUDA_ERROR_INVALID_VALUE);
	fails(create(node, CU_MEM_HANDLE_TYPE_WIN32, SIZE, &handle), CUDA_ERROR_INVALID_VALUE);
	fails(create(node, POSIX_FD | CU_MEM_HANDLE_TYPE_FABRIC, SIZE, &handle),
	      CUDA_ERROR_NOT_PERMITTED);
	ok(create(host, 0, SIZE, &handle));
	ok(create(node, 0, SIZE, &handle));
}
END_TEST

START_TEST(test_it_is_shared)
{
	CUmemGenericAllocationHandle handle, import;
	CUmemAllocationProp prop;
	int fd;

	ok(create(node, 0, SIZE, &handle));
	fails(cu.cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0), CUDA_ERROR_INVALID_VALUE);
	ok(create(node, POSIX_FD, SIZE, &handle));
	fails(cu.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0));
	ok(cu.cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd, POSIX_FD));
	ck_assert_uint_ne(handle, import);
	close(fd);
	ok(cu.cuMemGetAllocationPropertiesFromHandle(&prop, import));
	ck_assert_int_eq(prop.requestedHandleTypes, 0);
	ck_assert_int_eq(prop.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
}
END_TEST

START_TEST(test_a_mapping_is_whole)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	ok(create(node, POSIX_FD, SIZE, &handle));
	ok(cu.cuMemAddressReserve(&at, 2 * SIZE, 0, 0, 0));
	ok(cu.cuMemMap(at, SIZE, 0, handle, 0));
	fails(cu.cuMemMap(at, SIZE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ok(give(at, SIZE, device, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	fails(give(at, SIZE / 2, device, RW), CUDA_ERROR_INVALID_VALUE);
	ok(give(at, SIZE, device, RW));
	ok(give(at, SIZE, node, RW));
	ok(give(at, SIZE, no_node, RW));
	ok(give(at, SIZE, host, RW));
	ck_assert_uint_eq(access_at(at, device), 3);
	ck_assert_uint_eq(access_at(at, node), 3);
	ck_assert_uint_eq(access_at(at, host), 3);
	fails(cu.cuMemUnmap(at, SIZE / 2), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemAddressFree(at, 2 * SIZE), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemUnmap(at, SIZE));
	ok(cu.cuMemAddressFree(at, 2 * SIZE));
}
END_TEST

START_TEST(test_its_pointers)
{
	CUmemGenericAllocationHandle handle;
	unsigned long long types = 0;
	CUcontext ctx = primary;
	unsigned int flags = 0;
	CUdeviceptr at, ptr = 1;
	size_t size = 0;
	int fd;

	ok(create(node, POSIX_FD, SIZE, &handle));
	ok(cu.cuMemAddressReserve(&at, SIZE, 0, 0, 0));
	ok(cu.cuMemMap(at, SIZE, 0, handle, 0));
	ok(give(at, SIZE, device, RW));
	ok(cu.cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, at));
	ck_assert_ptr_null(ctx);
	ok(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
	ck_assert_uint_eq(types, POSIX_FD);
	ok(cu.cuMemGetAddressRange_v2(&ptr, &size, at + 64));
	ck_assert_uint_eq(ptr, 0);
	ck_assert_uint_eq(size, SIZE);
	ok(cu.cuMemHostGetFlags(&flags, (void *)at));
	ck_assert_uint_eq(flags, 3);
	ok(cu.cuMemHostGetDevicePointer_v2(&ptr, (void *)at, 0));
	ck_assert_uint_eq(ptr, at);
	fails(cu.cuMemHostRegister_v2((void *)at, SIZE, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemHostUnregister((void *)at), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemGetHandleForAddressRange(&fd, at, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					       0),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
	fails(cu.cuMemFreeHost((void *)at), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* It belongs to no context; a registration ends with its own. */
START_TEST(test_the_end_of_a_context)
{
	static char words[4096] __attribute__((aligned(4096)));
	CUmemGenericAllocationHandle handle;
	CUcontext other;
	CUdeviceptr at;

	ok(create(node, POSIX_FD, SIZE, &handle));
	ok(cu.cuMemAddressReserve(&at, SIZE, 0, 0, 0));
	ok(cu.cuMemMap(at, SIZE, 0, handle, 0));
	ok(cu.cuCtxCreate_v4(&other, NULL, 0, 0));
	ok(give(at, SIZE, device, RW));
	ok(cu.cuMemHostRegister_v2(words, sizeof(words), CU_MEMHOSTREGISTER_PORTABLE));
	ok(cu.cuCtxSetCurrent(primary));
	ok(cu.cuMemsetD8_v2((CUdeviceptr)words, 1, sizeof(words)));
	ok(cu.cuCtxDestroy_v2(other));
	fails(cu.cuMemsetD8_v2((CUdeviceptr)words, 1, sizeof(words)), CUDA_ERROR_INVALID_VALUE);
	ok(cu.cuMemsetD8_v2(at, 5, SIZE));
	ok(cu.cuDevicePrimaryCtxReset_v2(0));
	ok(cu.cuDevicePrimaryCtxRetain(&primary, 0));
	ok(cu.cuCtxSetCurrent(primary));
	ok(cu.cuMemsetD8_v2(at, 6, SIZE));
	ok(cu.cuCtxSynchronize());
	ck_assert_int_eq(*(char *)at, 6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: host memory");
	TCase *tcase = tcase_create("host memory");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, open_context, NULL);
	tcase_add_test(tcase, test_what_is_created);
	tcase_add_test(tcase, test_it_is_shared);
	tcase_add_test(tcase, test_a_mapping_is_whole);
	tcase_add_test(tcase, test_its_pointers);
	tcase_add_test(tcase, test_the_end_of_a_context);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
