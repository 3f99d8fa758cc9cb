/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIDELITY_MAPPINGS_H
#define CUDAW_FIDELITY_MAPPINGS_H
/* The cases of fidelity.c about the mappings of memory that the program did not map by itself. */

/* How the driver describes the memory at @ptr, of @size bytes. */
static void say_mapping(const char *what, CUdeviceptr ptr, size_t size)
{
	unsigned long long id[2] = {0}, access = 99;
	size_t mapping = 0;
	CUdeviceptr base = 0;
	CUresult results[4] = {
		cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, ptr + size / 2),
		cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
				      ptr + size / 2),
		cuPointerGetAttribute(&id[0], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, ptr),
		cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ptr)};

	cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, ptr + size - 1);
	say("MAPPING_SIZE of %s: %s, %zu KiB", what, name_of(results[0]), mapping / (size_t)KIB);
	say("MAPPING_BASE_ADDR of %s: %s, %s", what, name_of(results[1]),
	    base == ptr            ? "its start"
	    : ptr - base < 2 * MIB ? "in the 2 MiB before it"
				   : "elsewhere");
	say("MEMORY_BLOCK_ID of %s: %s, %s, %s at its end", what, name_of(results[2]),
	    id[0] ? "set" : "0", id[0] == id[1] ? "the same" : "another");
	say("ACCESS_FLAGS of %s: %s, %llu", what, name_of(results[3]), access);
}

static void case_mappings(void)
{
	CUdeviceptr big = alloc(4 * MIB + 512), small = alloc(100), next = alloc(100), pooled;
	CUdeviceptr huge = alloc(1536 * MIB);
	CUstream stream = stream_new();

	CALL(cuMemAllocAsync(&pooled, 4 * MIB, stream));
	say_mapping("1.5 GiB", huge, 1536 * MIB);
	say_mapping("4 MiB and a half KiB", big, 4 * MIB + 512);
	say_mapping("100 bytes", small, 100);
	say_mapping("the next 100 bytes", next, 100);
	say_mapping("memory of a pool", pooled, 4 * MIB);
}

/* The calls for the program's own mappings, on memory with @inside that it did not map. */
static void say_foreign(const char *what, CUdeviceptr ptr, size_t size, CUdeviceptr inside)
{
	const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev};
	const CUmemAccessDesc only_read = {here, CU_MEM_ACCESS_FLAGS_PROT_READ};
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	unsigned long long access = 99;
	CUmemGenericAllocationHandle handle;
	CUresult result;

	say("setting the access of %s: %s", what,
	    name_of(cuMemSetAccess(ptr, size, &only_read, 1)));
	result = cuMemGetAccess(&access, &here, inside);
	say("the access of %s: %s, %llu", what, name_of(result), access);
	CALL(cuMemCreate(&handle, size, &prop, 0));
	say("mapping over %s: %s", what, name_of(cuMemMap(ptr, size, 0, handle, 0)));
	CALL(cuMemRelease(handle));
	say("unmapping %s: %s", what, name_of(cuMemUnmap(ptr, size)));
	say("freeing the address of %s: %s", what, name_of(cuMemAddressFree(ptr, size)));
}

static void case_foreign(void)
{
	CUdeviceptr big = alloc(4 * MIB), small = alloc(100), next = alloc(100), pooled;
	CUstream stream = stream_new();

	CALL(cuMemAllocAsync(&pooled, 4 * MIB, stream));
	CALL(cuMemsetD32(next, 42, 25));
	say_foreign("4 MiB", big, 4 * MIB, big);
	say_foreign("a half of it", big + 2 * MIB, 2 * MIB, big + 3 * MIB);
	say_foreign("the block of 100 bytes", small & ~(2 * MIB - 1), 2 * MIB, small);
	say_foreign("memory of a pool", pooled, 4 * MIB, pooled);
	say_words("the neighbour has its contents", next, 100, 42);
	CALL(cuMemFree(big));
	say_foreign("freed memory", big, 4 * MIB, big);
	CALL(cuMemFree(small));
	CALL(cuMemFree(next));
	CALL(cuMemFree(pooled));
	CALL(cuMemFree(alloc(4 * MIB)));
}

#endif
