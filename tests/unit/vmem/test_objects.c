/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's own objects over the simulated driver: their handles, what keeps them alive, what is
 * carried, and that a pause and a resume leave everything as it was.
 */
#include "common/protocol/beacon.h"
#include "common/gpu/gpu.h"
#include "vmem/objects/objects.h"

#include "tests/check_suite.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define GRANULE   VMEM_GRANULE
#define NHANDLES  3
#define OK(call)  ck_assert_int_eq(call, CUDA_SUCCESS)
#define BAD(call) ck_assert_int_eq(call, CUDA_ERROR_INVALID_VALUE)

static struct cuda_driver drv;
static __typeof__(cuMemGetAccess) *get_access;
static CUcontext ctx;
static uint64_t last_gone;
static unsigned int ngone;

static void on_gone(uint64_t handle)
{
	last_gone = handle;
	ngone++;
}
OBJECT_GONE(on_gone);

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	ck_assert_msg(found, "%s: %s", name, dlerror());
	return found;
}

static void setup(void)
{
	const char *path = getenv("CUDAW_REAL_LIBCUDA"), *missing = "";
	void *library;

	setenv("CUDAW_SIM_DEVICES", "2", 1);
	library = dlopen(path, RTLD_NOW);
	ck_assert_msg(library, "CUDAW_REAL_LIBCUDA=%s: %s", path, dlerror());
	OK(cuda_driver_fill(&drv, library, &missing));
	get_access = symbol(library, "cuMemGetAccess");
	OK(((__typeof__(cuInit) *)symbol(library, "cuInit"))(0));
	ck_assert_int_eq(vmem_init(&drv), 0);
	OK(drv.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(drv.cuCtxSetCurrent(ctx));
}

static CUmemAllocationProp plain(void)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
}

static CUmemGenericAllocationHandle make_of(CUmemAllocationProp prop, size_t size)
{
	CUmemGenericAllocationHandle handle, real;

	OK(drv.cuMemCreate(&handle, size, &prop, 0));
	real = handle;
	ck_assert(objects_add(&handle, size, &prop));
	ck_assert(objects_is_ours(handle));
	ck_assert(!objects_is_ours(real));
	return handle;
}

static CUmemGenericAllocationHandle make(size_t size)
{
	return make_of(plain(), size);
}

static CUdeviceptr reserve(size_t size)
{
	CUdeviceptr at;

	OK(drv.cuMemAddressReserve(&at, size, 0, 0, 0));
	return at;
}

static void allow(CUdeviceptr at, size_t size, int dev, CUmemAccess_flags flags)
{
	const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, dev}, flags};

	OK(objects_set_access(at, size, &desc, 1));
}

static void check_access(CUdeviceptr at, int dev, CUmemAccess_flags expected)
{
	const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, dev};
	unsigned long long flags;

	OK(get_access(&flags, &location, at));
	ck_assert_uint_eq(flags, expected);
}

static void check_stats(size_t carried, size_t mapped, size_t nalloc)
{
	struct vmem_stats st;

	vmem_get_device_stats(0, &st);
	ck_assert_uint_eq(st.carried, carried);
	ck_assert_uint_eq(st.mapped, mapped);
	ck_assert_uint_eq(st.nalloc, nalloc);
}

/* Unmap and map all regions; returns how many there are. */
static size_t pause_and_resume(void)
{
	struct vmem_region regions[16];
	struct vmem_stats before, away;
	size_t n;

	vmem_get_stats(&before);
	OK(vmem_objects_hold(ctx, 0));
	n = vmem_regions(regions, 16);
	ck_assert_uint_le(n, 16);
	for (size_t i = 0; i < n; i++) {
		ck_assert(!i || regions[i - 1].start < regions[i].start);
		ck_assert(regions[i].mapped && regions[i].ctx == ctx);
		OK(vmem_region_unmap(regions[i].start));
	}
	vmem_get_stats(&away);
	ck_assert_uint_eq(away.mapped, 0);
	ck_assert_uint_eq(away.carried, before.carried);
	for (size_t i = 0; i < n; i++)
		OK(vmem_region_map(regions[i].start));
	ck_assert(!vmem_has_left());
	vmem_objects_let_go();
	vmem_get_stats(&away);
	ck_assert_uint_eq(away.mapped, before.mapped);
	ck_assert_uint_eq(vmem_regions(NULL, 0), 0);
	return n;
}

START_TEST(a_handle_lives_as_long_as_its_references)
{
	CUmemGenericAllocationHandle handle = make(GRANULE), again, driver_s;
	CUdeviceptr at = reserve(GRANULE);

	OK(objects_map(at, GRANULE, 0, handle, 0));
	OK(objects_retain(at, &again));
	ck_assert_uint_eq(again, handle);
	OK(objects_release(handle));
	OK(objects_find(handle, &driver_s));
	OK(objects_release(handle));
	BAD(objects_find(handle, &driver_s));
	BAD(objects_release(handle));
	BAD(objects_map(reserve(GRANULE), GRANULE, 0, handle, 0));
	/* The mapping keeps the object, and gives its handle again. */
	ck_assert_uint_eq(pause_and_resume(), 1);
	OK(objects_retain(at + GRANULE - 1, &again));
	ck_assert_uint_eq(again, handle);
	OK(objects_unmap(at, GRANULE));
	ck_assert_int_eq(objects_retain(at, &again), CUDA_ERROR_NOT_FOUND);
	ck_assert_uint_eq(ngone, 0);
	check_stats(GRANULE, GRANULE, 1);
	ck_assert_uint_eq(pause_and_resume(), 1);
	OK(objects_release(handle));
	ck_assert_uint_eq(ngone, 1);
	ck_assert_uint_eq(last_gone, handle);
	check_stats(0, 0, 0);
	ck_assert_uint_ne(make(GRANULE), handle);
}
END_TEST

START_TEST(only_plain_memory_is_carried)
{
	CUmemAllocationProp prop = plain();
	CUmemGenericAllocationHandle handle = 77;

	ck_assert(!objects_add(&handle, GRANULE / 2, &prop));
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	ck_assert(!objects_add(&handle, GRANULE, &prop));
	prop = plain();
	prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
	ck_assert(!objects_add(&handle, GRANULE, &prop));
	prop = plain();
	prop.location.id = GPU_MAX;
	ck_assert(!objects_add(&handle, GRANULE, &prop));
	ck_assert_uint_eq(handle, 77);
}
END_TEST

/* Three objects side by side: the first is mapped twice, the last only for reading. */
START_TEST(mappings_come_back_with_their_access)
{
	CUdeviceptr at = reserve(NHANDLES * GRANULE), second = reserve(GRANULE);
	CUmemGenericAllocationHandle handles[NHANDLES];

	for (int i = 0; i < NHANDLES; i++) {
		handles[i] = make(GRANULE);
		OK(objects_map(at + i * GRANULE, GRANULE, 0, handles[i], 0));
	}
	OK(objects_map(second, GRANULE, 0, handles[0], 0));
	allow(at, NHANDLES * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	allow(at, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	allow(second, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	allow(second, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	allow(second, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
	allow(at + 2 * GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(pause_and_resume(), NHANDLES);
		check_access(at, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		check_access(at, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		check_access(at + GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
		check_access(at + 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
		check_access(second, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
		check_access(second, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
	}
	ck_assert_uint_eq(objects_bytes(at + GRANULE / 2), 5 * GRANULE / 2);
	ck_assert_uint_eq(objects_bytes(at + NHANDLES * GRANULE), 0);
	OK(objects_unmap(at, NHANDLES * GRANULE));
	ck_assert_uint_eq(objects_bytes(at), 0);
	for (int i = 0; i < NHANDLES; i++)
		OK(objects_release(handles[i]));
	ck_assert_uint_eq(ngone, NHANDLES - 1);
	OK(objects_unmap(second, GRANULE));
	ck_assert_uint_eq(ngone, NHANDLES);
}
END_TEST

/* The driver unmaps whole mappings: what it refuses stays known. */
START_TEST(a_part_is_not_unmapped)
{
	CUmemGenericAllocationHandle handle = make(2 * GRANULE);
	CUdeviceptr at = reserve(2 * GRANULE);

	OK(objects_map(at, 2 * GRANULE, 0, handle, 0));
	allow(at, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	BAD(objects_unmap(at, GRANULE));
	BAD(objects_unmap(at + GRANULE, GRANULE));
	ck_assert_uint_eq(pause_and_resume(), 1);
	check_access(at + GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(objects_unmap(at, 2 * GRANULE));
	OK(objects_release(handle));
	ck_assert_uint_eq(ngone, 1);
}
END_TEST

START_TEST(what_is_left_to_the_driver_stays)
{
	CUmemGenericAllocationHandle handle = make(GRANULE), found;
	CUdeviceptr at = reserve(GRANULE), pos = at;

	OK(objects_map(at, GRANULE, 0, handle, 0));
	ck_assert(objects_next(&pos, at + 1, &found));
	ck_assert_uint_eq(found, handle);
	ck_assert(!objects_next(&pos, at + GRANULE, &found));
	ck_assert_uint_eq(objects_leave(handle), GRANULE);
	ck_assert_uint_eq(objects_leave(handle), 0);
	check_stats(0, 0, 0);
	ck_assert_uint_eq(pause_and_resume(), 0);
	OK(objects_unmap(at, GRANULE));
	OK(objects_release(handle));
	ck_assert_uint_eq(ngone, 1);
	check_stats(0, 0, 0);
}
END_TEST

#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static CUmemGenericAllocationHandle make_shareable(size_t size)
{
	CUmemAllocationProp prop = plain();

	prop.requestedHandleTypes = POSIX_FD;
	return make_of(prop, size);
}

/* The object gets a name, whose first byte is @name. */
static struct object_name share(CUmemGenericAllocationHandle handle, unsigned char name)
{
	const struct object_name fresh = {.pid = 1, .instance = {9}, .key = {name}};
	struct object_name given;

	OK(objects_share(handle, POSIX_FD, 0, &fresh, &given));
	return given;
}

static void import_again(CUmemGenericAllocationHandle handle, const struct object_name *name)
{
	size_t size;
	int fd;

	OK(objects_export(name->key, &fd, &size));
	OK(objects_import(handle, fd, size, 1));
	close(fd);
}

static CUmemGenericAllocationHandle import(const struct object_name *name)
{
	CUmemGenericAllocationHandle handle;

	OK(objects_import_begin(name, &handle));
	import_again(handle, name);
	return handle;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t size)
{
	CUdeviceptr at = reserve(size);

	OK(objects_map(at, size, 0, handle, 0));
	allow(at, size, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return at;
}

static void write_word(CUdeviceptr at, uint32_t word)
{
	*(volatile uint32_t *)(uintptr_t)at = word;
}

static uint32_t read_word(CUdeviceptr at)
{
	return *(volatile uint32_t *)(uintptr_t)at;
}

START_TEST(a_name_stays_and_only_shareable_memory_has_one)
{
	CUmemGenericAllocationHandle handle = make_shareable(GRANULE), bare = make(GRANULE);
	const struct object_name fresh = {.key = {7}};
	struct object_name given;
	size_t size;
	int fd;

	BAD(objects_share(bare, POSIX_FD, 0, &fresh, &given));
	BAD(objects_share(handle, POSIX_FD, 1, &fresh, &given));
	ck_assert(!objects_have_key(fresh.key));
	share(handle, 1);
	ck_assert_int_eq(share(handle, 2).key[0], 1);
	BAD(objects_export(fresh.key, &fd, &size));
	OK(objects_release(handle));
	ck_assert(!objects_have_key((const unsigned char[OBJECT_KEY]){1}));
}
END_TEST

START_TEST(an_import_shows_the_same_bytes_and_is_not_carried)
{
	CUmemGenericAllocationHandle own = make_shareable(2 * GRANULE), other;
	const struct object_name name = share(own, 1);
	CUdeviceptr at = map(own, 2 * GRANULE), there;

	other = import(&name);
	ck_assert_uint_ne(other, own);
	there = map(other, 2 * GRANULE);
	write_word(at + 4, 41);
	ck_assert_uint_eq(read_word(there + 4), 41);
	check_stats(2 * GRANULE, 2 * GRANULE, 1);
	ck_assert_uint_eq(objects_shared_held(), 2);
	OK(objects_unmap(there, 2 * GRANULE));
	OK(objects_release(other));
	ck_assert_uint_eq(last_gone, other);
	ck_assert_uint_eq(objects_shared_held(), 1);
}
END_TEST

START_TEST(a_pause_gives_imports_back_and_a_resume_gets_the_new_memory)
{
	CUmemGenericAllocationHandle own = make_shareable(GRANULE), other, bare;
	const struct object_name name = share(own, 1);
	struct object_import next = {0};
	struct vmem_region region;
	CUdeviceptr at = map(own, GRANULE), there, bare_there;
	size_t size;
	int fd;

	other = import(&name);
	there = map(other, GRANULE);
	bare = import(&name);
	bare_there = map(bare, GRANULE);
	OK(objects_release(bare));
	objects_close_exports();
	ck_assert_int_eq(objects_export(name.key, &fd, &size), CUDA_ERROR_NOT_READY);
	OK(vmem_objects_hold(ctx, 0));
	ck_assert_uint_eq(vmem_regions(&region, 1), 1);
	OK(objects_release_imports(NULL));
	OK(vmem_region_unmap(region.start));
	ck_assert_uint_eq(objects_shared_held(), 0);
	OK(objects_release_imports(NULL));
	OK(vmem_region_map(region.start));
	vmem_objects_let_go();
	objects_open_exports();
	while (objects_next_import(&next)) {
		ck_assert(next.away);
		ck_assert_int_eq(next.name.key[0], 1);
		import_again(next.handle, &next.name);
	}
	ck_assert_uint_eq(next.handle, bare);
	write_word(at, 42);
	ck_assert_uint_eq(read_word(there), 42);
	ck_assert_uint_eq(read_word(bare_there), 42);
	check_access(there, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(objects_release(other));
	BAD(objects_release(bare));
}
END_TEST

START_TEST(an_import_that_fails_leaves_nothing)
{
	CUmemGenericAllocationHandle own = make_shareable(GRANULE), other;
	const struct object_name name = share(own, 1);
	CUdeviceptr there;
	size_t size;
	int fd;

	OK(objects_import_begin(&name, &other));
	ck_assert_int_ne(objects_import(other, -1, GRANULE, 1), CUDA_SUCCESS);
	BAD(objects_import(other, 0, 0, 1));
	objects_import_drop(other);
	BAD(objects_release(other));
	other = import(&name);
	there = map(other, GRANULE);
	OK(objects_release_imports(NULL));
	/* The exporter's memory has another size now: it is not that memory. */
	OK(objects_export(name.key, &fd, &size));
	BAD(objects_import(other, fd, 2 * size, 2));
	OK(objects_import(other, fd, size, 2));
	close(fd);
	write_word(there, 43);
}
END_TEST

static int ticket_of(const struct object_name *name)
{
	struct beacon beacon;
	int fd = beacon_make("t", 1, &beacon);

	ck_assert_int_ge(fd, 0);
	ck_assert(objects_add_ticket(name->key, &beacon));
	return fd;
}

START_TEST(a_ticket_keeps_what_the_program_has_freed)
{
	CUmemGenericAllocationHandle own = make_shareable(GRANULE), other;
	const struct object_name name = share(own, 1);
	int first = ticket_of(&name), second = ticket_of(&name);
	CUdeviceptr at = map(own, GRANULE);

	write_word(at, 44);
	OK(objects_release(own));
	OK(objects_unmap(at, GRANULE));
	BAD(objects_release(own));
	close(first);
	objects_put_kept();
	check_stats(GRANULE, GRANULE, 1);
	other = import(&name);
	ck_assert_uint_eq(read_word(map(other, GRANULE)), 44);
	OK(objects_release_imports(NULL));
	ck_assert_uint_eq(pause_and_resume(), 1);
	ck_assert_uint_eq(ngone, 0);
	close(second);
	objects_close_exports();
	objects_put_kept();
	ck_assert_uint_eq(ngone, 0);
	objects_open_exports();
	objects_put_kept();
	ck_assert_uint_eq(last_gone, own);
	check_stats(0, 0, 0);
	ck_assert(!objects_have_key(name.key));
}
END_TEST

START_TEST(a_ticket_that_is_closed_keeps_nothing)
{
	CUmemGenericAllocationHandle own = make_shareable(GRANULE);
	const struct object_name name = share(own, 1), none = {.key = {2}};
	struct beacon beacon = {{0}};

	for (int i = 0; i < 100; i++)
		close(ticket_of(&name));
	ck_assert(!objects_add_ticket(none.key, &beacon));
	OK(objects_release(own));
	ck_assert_uint_eq(last_gone, own);
	check_stats(0, 0, 0);
}
END_TEST

/* It is the same memory, which nobody else has any more. */
START_TEST(an_import_of_its_own_takes_the_place_of_what_was_freed)
{
	CUmemGenericAllocationHandle own = make_shareable(GRANULE), other;
	const struct object_name name = share(own, 1);
	struct object_import none = {0};
	CUdeviceptr there;

	other = import(&name);
	there = map(other, GRANULE);
	write_word(there, 45);
	OK(objects_release(own));
	ck_assert_uint_eq(last_gone, own);
	ck_assert(!objects_next_import(&none));
	check_stats(GRANULE, GRANULE, 1);
	ck_assert_uint_eq(pause_and_resume(), 1);
	ck_assert_int_eq(share(other, 2).key[0], 1);
	write_word(there, 46);
	ck_assert_uint_eq(read_word(map(import(&name), GRANULE)), 46);
	OK(objects_release_imports(NULL));
	OK(objects_release(other));
	OK(objects_unmap(there, GRANULE));
	ck_assert_uint_eq(last_gone, other);
	check_stats(0, 0, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("objects");
	TCase *tc = tcase_create("objects");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_handle_lives_as_long_as_its_references);
	tcase_add_test(tc, only_plain_memory_is_carried);
	tcase_add_test(tc, mappings_come_back_with_their_access);
	tcase_add_test(tc, a_part_is_not_unmapped);
	tcase_add_test(tc, what_is_left_to_the_driver_stays);
	tcase_add_test(tc, a_name_stays_and_only_shareable_memory_has_one);
	tcase_add_test(tc, an_import_shows_the_same_bytes_and_is_not_carried);
	tcase_add_test(tc, a_pause_gives_imports_back_and_a_resume_gets_the_new_memory);
	tcase_add_test(tc, an_import_that_fails_leaves_nothing);
	tcase_add_test(tc, a_ticket_keeps_what_the_program_has_freed);
	tcase_add_test(tc, a_ticket_that_is_closed_keeps_nothing);
	tcase_add_test(tc, an_import_of_its_own_takes_the_place_of_what_was_freed);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
