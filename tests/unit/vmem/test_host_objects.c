/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's own host memory over the simulated driver: its handles and files, where it may be mapped, and that the
 * registrations of its mappings outlive their contexts.
 */
#include "vmem/objects/host_file.h"
#include "vmem/objects/host_objects.h"
#include "vmem/vmem.h"

#include "tests/check_suite.h"
#include "tests/unit/without_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRANULE   VMEM_GRANULE
#define SIZE      (2 * GRANULE)
#define POSIX_FD  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define RW        CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define OK(call)  ck_assert_int_eq(call, CUDA_SUCCESS)
#define BAD(call) ck_assert_int_eq(call, CUDA_ERROR_INVALID_VALUE)

static const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
			   node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
			   host = {CU_MEM_LOCATION_TYPE_HOST, 0};

static struct cuda_driver drv;
static __typeof__(cuMemsetD8_v2) *set_bytes;
static __typeof__(cuCtxCreate_v4) *create_context;
static __typeof__(cuCtxDestroy_v2) *destroy_context;
static __typeof__(cuStreamBeginCapture_v2) *begin_capture;
static __typeof__(cuStreamEndCapture) *end_capture;
static CUcontext ctx;

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	ck_assert_msg(found, "%s: %s", name, dlerror());
	return found;
}

static void setup(void)
{
	const char *path = getenv("CUDAW_REAL_LIBCUDA"), *missing = "";
	void *library = dlopen(path, RTLD_NOW);

	ck_assert_msg(library, "CUDAW_REAL_LIBCUDA=%s: %s", path, dlerror());
	OK(cuda_driver_fill(&drv, library, &missing));
	set_bytes = symbol(library, "cuMemsetD8_v2");
	create_context = symbol(library, "cuCtxCreate_v4");
	destroy_context = symbol(library, "cuCtxDestroy_v2");
	begin_capture = symbol(library, "cuStreamBeginCapture_v2");
	end_capture = symbol(library, "cuStreamEndCapture");
	OK(((__typeof__(cuInit) *)symbol(library, "cuInit"))(0));
	ck_assert_int_eq(vmem_init(&drv), 0);
	OK(drv.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(drv.cuCtxSetCurrent(ctx));
}

static CUmemGenericAllocationHandle make(size_t size)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = POSIX_FD,
					  .location = node};
	CUmemGenericAllocationHandle handle;
	int fd = host_file_make(size, 0);

	ck_assert_int_gt(fd, STDERR_FILENO);
	OK(host_objects_add(fd, size, GRANULE, &prop, false, &handle));
	ck_assert(host_objects_is_ours(handle));
	return handle;
}

static CUdeviceptr reserve(size_t size)
{
	CUdeviceptr at;

	OK(drv.cuMemAddressReserve(&at, size, 0, 0, 0));
	ck_assert(host_objects_reserve(at, size));
	return at;
}

static CUresult allow(CUdeviceptr at, size_t size, CUmemLocation location, CUcontext in)
{
	const CUmemAccessDesc desc = {location, RW};

	return host_objects_set_access(at, size, &desc, 1, in);
}

static unsigned long long access_of(CUdeviceptr at, CUmemLocation location)
{
	unsigned long long flags = 99;

	OK(host_objects_get_access(&flags, &location, at));
	return flags;
}

/* A new object, mapped, with access for the device. */
static CUdeviceptr map_new(size_t size)
{
	CUmemGenericAllocationHandle handle = make(size);
	CUdeviceptr at = reserve(size);

	OK(host_objects_map(at, size, 0, handle, 0));
	OK(allow(at, size, device, ctx));
	OK(host_objects_release(handle));
	return at;
}

static unsigned int count_descriptors(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

START_TEST(a_file_cannot_change_its_length)
{
	int fd = host_file_make(SIZE, 3), number = -1, other;
	char path[64];
	size_t size = 0;

	ck_assert(host_file_read(fd, &size, &number));
	ck_assert_uint_eq(size, SIZE);
	ck_assert_int_eq(number, 3);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_ne(ftruncate(fd, 0), 0);
	ck_assert_int_ne(ftruncate(fd, 2 * SIZE), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR);
	ck_assert(host_file_read(other, &size, &number));
	/* Others: not sealed; of another name; no file. */
	other = memfd_create("cudaw-host-memory-0", MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(other, SIZE), 0);
	ck_assert(!host_file_read(other, &size, &number));
	other = memfd_create("cudaw-host-memory-", MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(other, SIZE), 0);
	ck_assert_int_eq(fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	ck_assert(!host_file_read(other, &size, &number));
	ck_assert(!host_file_read(-1, &size, &number));
	ck_assert(!host_file_read(STDIN_FILENO, &size, &number));
}
END_TEST

static int make_and_read(void)
{
	int fd = host_file_make(SIZE, 3), number;
	size_t size;

	return !host_file_read(fd, &size, &number);
}

START_TEST(a_process_without_its_main_thread_reads_a_file)
{
	ck_assert_int_eq(run_without_main(make_and_read), 0);
}
END_TEST

START_TEST(no_file_is_no_error_of_the_program)
{
	struct rlimit limit = {SIZE, RLIM_INFINITY}, files = {3, RLIM_INFINITY};

	/* More than the machine has. */
	ck_assert_int_eq(host_file_make(1UL << 46, 0), -ENOMEM);
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = SIZE;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	/* SIGXFSZ would end the test. */
	ck_assert_int_eq(host_file_make(SIZE + GRANULE, 0), -EFBIG);
	ck_assert_int_ge(host_file_make(SIZE, 0), 0);
	files.rlim_max = 256;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(host_file_make(SIZE, 0), -EMFILE);
	/* A sanitizer that looks for leaks at the end opens files. */
	files.rlim_cur = files.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}
END_TEST

START_TEST(a_handle_lives_as_long_as_its_references)
{
	unsigned int before = count_descriptors();
	CUmemGenericAllocationHandle handle = make(SIZE), again;
	CUmemAllocationProp prop;
	CUdeviceptr at = reserve(SIZE);

	OK(host_objects_get_properties(&prop, handle));
	ck_assert_int_eq(prop.requestedHandleTypes, POSIX_FD);
	OK(host_objects_map(at, SIZE, 0, handle, 0));
	OK(host_objects_release(handle));
	BAD(host_objects_release(handle));
	BAD(host_objects_get_properties(&prop, handle));
	BAD(host_objects_map(reserve(SIZE), SIZE, 0, handle, 0));
	OK(host_objects_retain(at + SIZE - 1, &again));
	ck_assert_uint_eq(again, handle);
	OK(host_objects_unmap(at, SIZE));
	ck_assert_int_eq(host_objects_retain(at, &again), CUDA_ERROR_NOT_FOUND);
	ck_assert_uint_eq(count_descriptors(), before + 1);
	OK(host_objects_release(handle));
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

START_TEST(only_free_reservations_are_mapped)
{
	CUmemGenericAllocationHandle handle = make(SIZE);
	CUdeviceptr at = reserve(2 * SIZE), end = at + 2 * SIZE;
	char *mine =
		mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool known;

	strcpy(mine, "mine");
	BAD(host_objects_map(((CUdeviceptr)mine + GRANULE) & ~(GRANULE - 1), GRANULE, 0, handle,
			     0));
	BAD(host_objects_map(at + SIZE + GRANULE, SIZE, 0, handle, 0));
	BAD(host_objects_map(at - GRANULE, GRANULE, 0, handle, 0));
	BAD(host_objects_map(end, GRANULE, 0, handle, 0));
	BAD(host_objects_map(at, SIZE + GRANULE, 0, handle, 0));
	BAD(host_objects_map(at, 0, 0, handle, 0));
	BAD(host_objects_map(at + 4096, GRANULE, 0, handle, 0));
	BAD(host_objects_map(at, SIZE, 0, handle, 1));
	BAD(host_objects_map(at, (size_t)0 - GRANULE, 0, handle, 0));
	ck_assert_int_eq(host_objects_map(at, GRANULE, GRANULE, handle, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	OK(host_objects_map(at + GRANULE, SIZE, 0, handle, 0));
	BAD(host_objects_map(at, SIZE, 0, handle, 0));
	BAD(host_objects_map(at + GRANULE, SIZE, 0, handle, 0));
	OK(host_objects_map(at, GRANULE, 0, handle, 0));
	ck_assert(!host_objects_unreserve(at, 2 * SIZE, &known));
	OK(host_objects_unmap(at, 2 * SIZE));
	ck_assert(host_objects_unreserve(at, 2 * SIZE, &known));
	ck_assert(known);
	OK(drv.cuMemAddressFree(at, 2 * SIZE));
	BAD(host_objects_map(at, SIZE, 0, handle, 0));
	ck_assert(host_objects_unreserve(at, 2 * SIZE, &known));
	ck_assert(!known);
	ck_assert_str_eq(mine, "mine");
}
END_TEST

START_TEST(mappings_show_the_same_words)
{
	CUmemGenericAllocationHandle handle = make(SIZE), import;
	CUdeviceptr at = reserve(SIZE), second = reserve(SIZE), third = reserve(SIZE);
	CUmemAllocationProp prop;
	int fd, again;

	BAD(host_objects_export(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
	BAD(host_objects_export(&fd, handle, POSIX_FD, 1));
	ck_assert(!host_objects_are_shared());
	OK(host_objects_export(&fd, handle, POSIX_FD, 0));
	ck_assert(host_objects_are_shared());
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	OK(host_objects_import(fd, GRANULE, &import));
	ck_assert_uint_ne(import, handle);
	BAD(host_objects_import(STDIN_FILENO, GRANULE, &import));
	close(fd);
	OK(host_objects_get_properties(&prop, import));
	ck_assert_int_eq(prop.requestedHandleTypes, 0);
	ck_assert_int_eq(prop.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	BAD(host_objects_export(&again, import, POSIX_FD, 0));
	OK(host_objects_map(at, SIZE, 0, handle, 0));
	OK(host_objects_map(second, SIZE, 0, handle, 0));
	OK(host_objects_map(third, SIZE, 0, import, 0));
	OK(allow(at, SIZE, device, ctx));
	OK(allow(second, SIZE, node, ctx));
	OK(allow(third, SIZE, device, ctx));
	OK(set_bytes(at, 7, SIZE));
	OK(drv.cuCtxSynchronize());
	ck_assert_int_eq(*(char *)second, 7);
	ck_assert_int_eq(*((char *)third + SIZE - 1), 7);
	/* The device has no access by the second. */
	BAD(set_bytes(second, 8, SIZE));
	OK(host_objects_unmap(at, SIZE));
	BAD(set_bytes(at, 8, SIZE));
	OK(set_bytes(third, 8, SIZE));
	OK(drv.cuCtxSynchronize());
	ck_assert_int_eq(*(char *)second, 8);
	OK(host_objects_release(handle));
	OK(host_objects_unmap(second, SIZE));
	OK(host_objects_release(import));
	OK(host_objects_unmap(third, SIZE));
	ck_assert(!host_objects_are_shared());
}
END_TEST

START_TEST(access_is_noted)
{
	const CUmemAccessDesc none = {device, CU_MEM_ACCESS_FLAGS_PROT_NONE};
	CUmemGenericAllocationHandle handle = make(SIZE);
	CUdeviceptr at = reserve(SIZE);
	unsigned long long flags;

	OK(host_objects_map(at, SIZE, 0, handle, 0));
	ck_assert_uint_eq(access_of(at, device), 0);
	ck_assert_uint_eq(access_of(at, node), 0);
	OK(host_objects_set_access(at, SIZE, &none, 1, ctx));
	BAD(set_bytes(at, 8, SIZE));
	OK(allow(at, SIZE, device, ctx));
	OK(allow(at, SIZE, device, ctx));
	OK(allow(at, SIZE, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 5}, ctx));
	ck_assert_uint_eq(access_of(at + SIZE - 1, device), RW);
	ck_assert_uint_eq(access_of(at, node), RW);
	ck_assert_uint_eq(access_of(at, host), RW);
	ck_assert_int_eq(allow(at, SIZE, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 7}, ctx),
			 CUDA_ERROR_INVALID_DEVICE);
	BAD(allow(at, SIZE, (CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, 0}, ctx));
	OK(host_objects_unmap(at, SIZE));
	BAD(host_objects_get_access(&flags, &device, at));
}
END_TEST

START_TEST(ranges_have_whole_mappings_and_gaps)
{
	CUdeviceptr at = reserve(8 * GRANULE), from = at, end = at + 8 * GRANULE;
	CUmemGenericAllocationHandle handle = make(SIZE);
	struct host_objects_info info;

	ck_assert(!host_objects_overlap(at, 8 * GRANULE));
	OK(host_objects_map(at + 2 * GRANULE, SIZE, 0, handle, 0));
	OK(host_objects_map(at + 4 * GRANULE, SIZE, 0, handle, 0));
	ck_assert(!host_objects_overlap(at, SIZE));
	ck_assert(host_objects_overlap(at, SIZE + 1));
	ck_assert(host_objects_overlap(at + 6 * GRANULE - 1, 1));
	ck_assert(!host_objects_overlap(at + 6 * GRANULE, SIZE));
	ck_assert(host_objects_overlap(at, (size_t)-1));
	ck_assert(!host_objects_split(at, 8 * GRANULE));
	ck_assert(!host_objects_split(at + 2 * GRANULE, SIZE));
	ck_assert(host_objects_split(at + 2 * GRANULE, GRANULE));
	ck_assert(host_objects_split(at, 5 * GRANULE));
	ck_assert_uint_eq(host_objects_gap(&from, end), SIZE);
	ck_assert_uint_eq(from, at);
	from += SIZE;
	ck_assert_uint_eq(host_objects_gap(&from, end), SIZE);
	ck_assert_uint_eq(from, at + 6 * GRANULE);
	from += SIZE;
	ck_assert_uint_eq(host_objects_gap(&from, end), 0);
	ck_assert(host_objects_lookup(at + 5 * GRANULE, &info));
	ck_assert_uint_eq(info.start, at + 4 * GRANULE);
	ck_assert_uint_eq(info.size, SIZE);
	ck_assert_uint_eq(info.types, POSIX_FD);
	OK(host_objects_unmap(at + 2 * GRANULE, 2 * SIZE));
	ck_assert(!host_objects_lookup(at + 5 * GRANULE, &info));
}
END_TEST

START_TEST(registrations_outlive_their_context)
{
	CUdeviceptr at = map_new(SIZE), second;
	CUcontext other;

	OK(create_context(&other, NULL, 0, 0));
	second = reserve(SIZE);
	OK(host_objects_map(second, SIZE, 0, make(SIZE), 0));
	OK(allow(second, SIZE, device, other));
	OK(drv.cuCtxSetCurrent(ctx));
	OK(set_bytes(second, 1, SIZE));
	OK(destroy_context(other));
	BAD(set_bytes(second, 1, SIZE));
	host_objects_context_gone(other);
	ck_assert(host_objects_wait());
	host_objects_register(ctx);
	ck_assert(!host_objects_wait());
	OK(set_bytes(second, 2, SIZE));
	OK(set_bytes(at, 2, SIZE));
	OK(host_objects_unmap(second, SIZE));
	OK(host_objects_unmap(at, SIZE));
}
END_TEST

START_TEST(access_waits_for_a_context)
{
	CUmemGenericAllocationHandle handle = make(SIZE);
	CUdeviceptr at = reserve(SIZE);

	OK(host_objects_map(at, SIZE, 0, handle, 0));
	OK(allow(at, SIZE, node, NULL));
	ck_assert(!host_objects_wait());
	OK(allow(at, SIZE, device, NULL));
	ck_assert(host_objects_wait());
	ck_assert_uint_eq(access_of(at, device), RW);
	*(char *)at = 5;
	BAD(set_bytes(at, 1, SIZE));
	host_objects_register(ctx);
	OK(set_bytes(at, 1, SIZE));
	/* It waits no more once it is unmapped. */
	host_objects_context_gone(ctx);
	OK(drv.cuMemHostUnregister((void *)at));
	OK(host_objects_unmap(at, SIZE));
	host_objects_register(ctx);
	ck_assert(!host_objects_wait());
}
END_TEST

/* The thread's own stack of contexts, and its mode beside captures, stay. */
START_TEST(registering_changes_nothing_of_the_thread)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	CUdeviceptr at;
	CUcontext now;

	OK(drv.cuThreadExchangeStreamCaptureMode(&mode));
	OK(drv.cuCtxSetCurrent(NULL));
	at = map_new(SIZE);
	OK(host_objects_unmap(at, SIZE));
	OK(drv.cuCtxGetCurrent(&now));
	ck_assert_ptr_null(now);
	mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	OK(drv.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
END_TEST

/* As natively, it is allowed beside a capture. */
START_TEST(a_capture_goes_on)
{
	CUstream stream;
	CUgraph graph;
	CUdeviceptr at;

	OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	at = map_new(SIZE);
	OK(host_objects_unmap(at, SIZE));
	OK(end_capture(stream, &graph));
}
END_TEST

START_TEST(what_the_program_has_closed_stays_mapped)
{
	CUmemGenericAllocationHandle handle = make(SIZE);
	CUdeviceptr at = reserve(SIZE);
	int fd = -1;

	OK(host_objects_map(at, SIZE, 0, handle, 0));
	OK(allow(at, SIZE, device, ctx));
	for (int i = 3; i < 256; i++) {
		size_t size;
		int number;

		if (host_file_read(i, &size, &number))
			close(i);
	}
	ck_assert_int_eq(host_objects_export(&fd, handle, POSIX_FD, 0),
			 CUDA_ERROR_OPERATING_SYSTEM);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(host_objects_map(reserve(SIZE), SIZE, 0, handle, 0),
			 CUDA_ERROR_OPERATING_SYSTEM);
	OK(set_bytes(at, 1, SIZE));
	OK(host_objects_unmap(at, SIZE));
	OK(host_objects_release(handle));
}
END_TEST

/* As with the driver's memory [H200, driver 580.159]. */
START_TEST(a_forked_child_reads_and_writes_it)
{
	CUmemGenericAllocationHandle handle = make(SIZE);
	CUdeviceptr at = reserve(SIZE);
	volatile char *bytes = (volatile char *)(uintptr_t)at;
	pid_t child;
	int status;

	OK(host_objects_map(at, SIZE, 0, handle, 0));
	OK(allow(at, SIZE, device, ctx));
	bytes[5] = 42;
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		status = bytes[5];
		bytes[5] = 43;
		_exit(status);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, W_EXITCODE(42, 0));
	ck_assert_int_eq(bytes[5], 43);
	OK(host_objects_unmap(at, SIZE));
	OK(host_objects_release(handle));
}
END_TEST

#define THREADS 4
#define ROUNDS  40

/* For the lock under which contexts begin and end. */
static pthread_mutex_t lifetimes = PTHREAD_MUTEX_INITIALIZER;
static bool done;

static CUresult inside(CUresult (*call)(CUdeviceptr at), CUdeviceptr at)
{
	CUresult result;

	pthread_mutex_lock(&lifetimes);
	result = call(at);
	pthread_mutex_unlock(&lifetimes);
	return result;
}

static CUresult allow_device(CUdeviceptr at)
{
	return allow(at, SIZE, device, ctx);
}

static CUresult unmap(CUdeviceptr at)
{
	return host_objects_unmap(at, SIZE);
}

static void *map_and_unmap(void *unused)
{
	CUdeviceptr at = reserve(SIZE);
	bool known;

	for (int i = 0; i < ROUNDS; i++) {
		CUmemGenericAllocationHandle handle = make(SIZE), import;
		int fd;

		OK(host_objects_map(at, SIZE, 0, handle, 0));
		OK(inside(allow_device, at));
		*(volatile char *)at = 1;
		OK(host_objects_export(&fd, handle, POSIX_FD, 0));
		OK(host_objects_import(fd, GRANULE, &import));
		close(fd);
		OK(host_objects_release(handle));
		OK(inside(unmap, at));
		OK(host_objects_release(import));
	}
	ck_assert(host_objects_unreserve(at, SIZE, &known));
	ck_assert(known);
	OK(drv.cuMemAddressFree(at, SIZE));
	return unused;
}

static void *look(void *at)
{
	struct host_objects_info info;

	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		ck_assert(host_objects_lookup((CUdeviceptr)at, &info));
		ck_assert(host_objects_overlap((CUdeviceptr)at + GRANULE, 1));
		ck_assert_uint_eq(access_of((CUdeviceptr)at, device), RW);
	}
	return NULL;
}

START_TEST(threads_map_and_look)
{
	CUdeviceptr at = map_new(SIZE);
	pthread_t threads[THREADS], looking;

	ck_assert_int_eq(pthread_create(&looking, NULL, look, (void *)at), 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, map_and_unmap, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	pthread_join(looking, NULL);
	ck_assert(!host_objects_are_shared());
	OK(host_objects_unmap(at, SIZE));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host objects");
	TCase *tcase = tcase_create("host objects");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_file_cannot_change_its_length);
	tcase_add_test(tcase, a_process_without_its_main_thread_reads_a_file);
	tcase_add_test(tcase, no_file_is_no_error_of_the_program);
	tcase_add_test(tcase, a_handle_lives_as_long_as_its_references);
	tcase_add_test(tcase, only_free_reservations_are_mapped);
	tcase_add_test(tcase, mappings_show_the_same_words);
	tcase_add_test(tcase, access_is_noted);
	tcase_add_test(tcase, ranges_have_whole_mappings_and_gaps);
	tcase_add_test(tcase, registrations_outlive_their_context);
	tcase_add_test(tcase, access_waits_for_a_context);
	tcase_add_test(tcase, registering_changes_nothing_of_the_thread);
	tcase_add_test(tcase, a_capture_goes_on);
	tcase_add_test(tcase, what_the_program_has_closed_stays_mapped);
	tcase_add_test(tcase, a_forked_child_reads_and_writes_it);
	tcase_add_test(tcase, threads_map_and_look);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
