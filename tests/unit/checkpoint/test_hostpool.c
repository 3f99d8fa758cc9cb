/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the host memory of a pause is kept, and how much host memory there is. */
#include "common/system/hostmem.h"
#include "checkpoint/host/hostpool.h"

#include "tests/check_suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MB (1UL << 20)

/* Each version's directory of groups, and its file for the limit. */
static const char *const cgroups[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
					 {"/sys/fs/cgroup", "memory.max"}};
static char group[128];
static const char *group_parent;

static bool write_number(const char *directory, const char *name, size_t number)
{
	char path[256];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	f = fopen(path, "w");
	ok = f && fprintf(f, "%zu\n", number) > 0;
	return f && !fclose(f) && ok;
}

/* Enter a group of @limit bytes; false where none can be made. leave_group() ends it. */
static bool enter_group(size_t limit)
{
	for (int i = 0; i < 2; i++) {
		group_parent = cgroups[i][0];
		snprintf(group, sizeof(group), "%s/cudaw-test-%d", group_parent, getpid());
		if (mkdir(group, 0755))
			continue;
		if (write_number(group, cgroups[i][1], limit) &&
		    write_number(group, "cgroup.procs", getpid()))
			return true;
		rmdir(group);
	}
	printf("# no memory cgroup can be made here (it takes root and a writable hierarchy)\n");
	return false;
}

static void leave_group(void)
{
	ck_assert(write_number(group_parent, "cgroup.procs", getpid()));
	ck_assert_int_eq(rmdir(group), 0);
}

START_TEST(the_limit_is_read)
{
	size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	size_t limit, keep, keep_asked;

	ck_assert_uint_le(hostmem_limit(), machine);
	if (!enter_group(1024 * MB))
		return;
	unsetenv("CUDAW_HOST_POOL");
	limit = hostmem_limit();
	keep = hostpool_limit();
	setenv("CUDAW_HOST_POOL", "512M", 1);
	keep_asked = hostpool_limit();
	leave_group();
	ck_assert_uint_eq(limit, 1024 * MB);
	ck_assert_uint_eq(keep, 256 * MB);
	ck_assert_uint_eq(keep_asked, 512 * MB);
}
END_TEST

static char opened_paths[64][256];
static size_t opened;
static int without; /* opens, of which the next ones find no descriptor */

/* Comes before the C library's. */
int openat(int dir, const char *path, int flags, ...)
{
	int (*next)(int, const char *, int, ...) =
		(int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");

	snprintf(opened_paths[opened++ % 64], sizeof(opened_paths[0]), "%s", path);
	if (without) {
		without--;
		errno = EMFILE;
		return -1;
	}
	return next(dir, path, flags, 0600);
}

START_TEST(a_limit_that_is_given_needs_no_file)
{
	setenv("CUDAW_HOST_POOL", "512M", 1);
	opened = 0;
	ck_assert_uint_eq(hostpool_limit(), 512 * MB);
	ck_assert_uint_eq(opened, 0);
	unsetenv("CUDAW_HOST_POOL");
	ck_assert_uint_gt(hostpool_limit(), 0);
	ck_assert_uint_gt(opened, 0);
}
END_TEST

START_TEST(a_query_reads_each_file_once)
{
	bool entered = enter_group(1024 * MB);

	opened = 0;
	hostmem_ready();
	if (entered)
		leave_group();
	ck_assert_uint_le(opened, 64);
	for (size_t i = 0; i < opened; i++)
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(opened_paths[i], opened_paths[j]);
}
END_TEST

/* A limit that could not be read is not "no limit". */
START_TEST(without_descriptors_nothing_is_available)
{
	struct rlimit saved, none = {0, 0};
	size_t machine, cgroup, limit, ready;
	uint64_t number;
	int error;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
	none.rlim_max = saved.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	machine = hostmem_machine_available();
	cgroup = hostmem_cgroup_available();
	limit = hostmem_limit();
	ready = hostmem_ready();
	error = hostmem_group(&number);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
	ck_assert_uint_eq(machine, 0);
	ck_assert_uint_eq(cgroup, 0);
	ck_assert_uint_eq(limit, 0);
	ck_assert_uint_eq(ready, 0);
	ck_assert_int_eq(error, -EMFILE);
	ck_assert_uint_gt(hostmem_machine_available(), 0);
	ck_assert_uint_gt(hostmem_cgroup_available(), 0);
	ck_assert_int_eq(hostmem_group(&number), 0);
}
END_TEST

/* Other threads of a program with few may have the last one while they look at something. */
START_TEST(a_descriptor_is_awaited)
{
	uint64_t number;

	without = 3;
	ck_assert_uint_gt(hostmem_machine_available(), 0);
	without = 3;
	ck_assert_uint_gt(hostmem_cgroup_available(), 0);
	without = 3;
	ck_assert_uint_gt(hostmem_ready(), 0);
	without = 3;
	ck_assert_int_eq(hostmem_group(&number), 0);
	ck_assert_int_eq(without, 0);
}
END_TEST

static size_t pages_of(size_t block)
{
	unsigned char pages[HOSTPOOL_BLOCK / 4096];
	size_t count = 0;

	ck_assert_int_eq(mincore(hostpool_block(block)->start, HOSTPOOL_BLOCK, pages), 0);
	for (size_t i = 0; i < sizeof(pages); i++)
		count += pages[i] & 1;
	return count;
}

/* Pages of MADV_FREE are in the group's usage until the kernel wants them. */
START_TEST(relaxed_pages_are_left)
{
	size_t before, used, held, relaxed, ready, emptied;

	if (!enter_group(1024 * MB))
		return;
	before = hostmem_cgroup_available();
	ck_assert_int_eq(hostpool_grow(512 * MB / HOSTPOOL_BLOCK), 0);
	ck_assert_int_eq(hostpool_populate(512 * MB / HOSTPOOL_BLOCK, NULL), 0);
	held = hostpool_held(0);
	used = hostmem_cgroup_available();
	hostpool_relax(true, NULL);
	ck_assert_uint_eq(hostpool_held(0), 0);
	relaxed = hostmem_cgroup_available();
	ready = hostmem_ready();
	hostpool_empty(0);
	emptied = pages_of(0);
	hostpool_drop(NULL);
	leave_group();
	ck_assert_uint_eq(emptied, 0);
	ck_assert_uint_eq(held, 512 * MB);
	ck_assert_uint_lt(used, before - 400 * MB);
	ck_assert_uint_gt(relaxed, used + 400 * MB);
	ck_assert_uint_lt(ready, before - 400 * MB);
}
END_TEST

/* What the driver answers to cuMemHostUnregister. */
static CUresult answer;

static CUresult exchange(CUstreamCaptureMode *mode)
{
	ck_assert_int_eq(*mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}

static const void *not_pinned; /* a block that the driver does not pin */

static CUresult pin(void *start, size_t size, unsigned int flags)
{
	(void)size, (void)flags;
	return start == not_pinned ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult unpin(void *start)
{
	(void)start;
	return answer;
}

static bool is_mapped(const void *start)
{
	unsigned char pages[HOSTPOOL_BLOCK / 4096];

	return !mincore((void *)start, HOSTPOOL_BLOCK, pages);
}

static const struct cuda_driver drv = {.cuCtxSetCurrent = set_current,
				       .cuThreadExchangeStreamCaptureMode = exchange,
				       .cuMemHostRegister_v2 = pin,
				       .cuMemHostUnregister = unpin};

START_TEST(what_stays_pinned_is_kept)
{
	static const CUresult answers[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_INVALID_CONTEXT,
					   CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED};
	const char *start;

	ck_assert_int_eq(hostpool_grow(1), 0);
	ck_assert_int_eq(hostpool_populate(1, NULL), 0);
	start = hostpool_block(0)->start;
	memset((void *)start, 7, HOSTPOOL_BLOCK);
	hostpool_pin(&drv, NULL, 1, NULL);
	ck_assert(hostpool_block(0)->pinned);
	for (int i = 0; i < 2; i++) {
		answer = answers[i];
		hostpool_unpin(&drv, NULL, 0, NULL);
		hostpool_relax(true, NULL);
		hostpool_drop(NULL);
		ck_assert_uint_eq(hostpool_held(0), HOSTPOOL_BLOCK);
		ck_assert(is_mapped(start));
		ck_assert_int_eq(start[HOSTPOOL_BLOCK - 1], 7);
	}
	/* The registration went away with its context. */
	answer = answers[2];
	hostpool_unpin(&drv, NULL, 0, NULL);
	hostpool_drop(NULL);
	ck_assert_uint_eq(hostpool_count(), 0);
	ck_assert(!is_mapped(start));
}
END_TEST

START_TEST(what_is_not_pinned_goes_from_before_pinned_blocks_too)
{
	static const bool cancelled = true;

	ck_assert_int_eq(hostpool_grow(3), 0);
	ck_assert_int_eq(hostpool_populate(3, NULL), 0);
	not_pinned = hostpool_block(0)->start;
	hostpool_pin(&drv, NULL, 2, NULL);
	hostpool_drop(&cancelled);
	ck_assert_uint_eq(hostpool_count(), 3);
	ck_assert_uint_gt(pages_of(0), 0);
	hostpool_drop(NULL);
	ck_assert_uint_eq(hostpool_count(), 2);
	ck_assert_uint_eq(pages_of(0), 0);
	ck_assert_uint_gt(pages_of(1), 0);
}
END_TEST

static int memory_file(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	ck_assert_int_eq(pwrite(fd, "x", 1, size - 1), 1);
	return fd;
}

static size_t file_pages(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_blocks;
}

START_TEST(a_filled_file_becomes_blocks)
{
	const size_t size = 2 * HOSTPOOL_BLOCK;
	int open_ended = memory_file(size, 0), fd = memory_file(size, F_SEAL_SHRINK | F_SEAL_GROW);
	int pipes[2];
	char *last;

	ck_assert_int_eq(hostpool_take(open_ended, 2), -EINVAL);
	ck_assert_int_eq(hostpool_take(fd, 3), -EINVAL);
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(hostpool_take(pipes[0], 2), -EINVAL);
	ck_assert_uint_eq(hostpool_count(), 0);
	ck_assert_int_eq(hostpool_take(fd, 2), 0);
	ck_assert_int_eq(hostpool_take(fd, 2), -EBUSY);
	ck_assert_uint_eq(hostpool_held(0), size);
	last = hostpool_block(1)->start + HOSTPOOL_BLOCK - 1;
	ck_assert_int_eq(*last, 'x');
	/* It grows like any other, and once it is not needed its blocks are as any other, and the file is empty. */
	ck_assert_int_eq(hostpool_grow(3), 0);
	ck_assert_uint_gt(file_pages(fd), 0);
	hostpool_relax(true, NULL);
	ck_assert_uint_eq(file_pages(fd), 0);
	ck_assert_uint_eq(hostpool_held(0), 0);
	ck_assert_int_eq(*last, 0);
	*last = 'y';
	ck_assert_int_eq(hostpool_populate(3, NULL), 0);
	ck_assert_int_eq(*last, 'y');
	hostpool_drop(NULL);
	ck_assert_uint_eq(hostpool_count(), 0);
	close(fd);
}
END_TEST

START_TEST(what_is_in_a_file_outlives_the_pool)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	const size_t size = 2 * HOSTPOOL_BLOCK;
	int open_ended = memory_file(size, 0), fd = memory_file(size, seals);
	int other = memory_file(size, seals);

	ck_assert_int_eq(hostpool_grow(1), 0);
	ck_assert_int_eq(hostpool_begin_file(fd), -EBUSY);
	ck_assert(!hostpool_leave(1));
	hostpool_drop(NULL);
	ck_assert_int_eq(hostpool_begin_file(open_ended), -EINVAL);
	ck_assert_int_eq(hostpool_begin_file(fd), 0);
	ck_assert_int_eq(hostpool_grow(3), 0);
	hostpool_end_file();
	ck_assert_int_eq(hostpool_grow(4), 0);
	ck_assert_int_eq(hostpool_populate(4, NULL), 0);
	hostpool_block(1)->start[7] = 'y';
	ck_assert(!hostpool_leave(3));
	ck_assert(!hostpool_leave(5));
	ck_assert_uint_eq(hostpool_count(), 4);
	ck_assert(hostpool_leave(2));
	ck_assert_uint_eq(hostpool_count(), 0);
	ck_assert_uint_gt(file_pages(fd), 0);
	ck_assert_int_eq(hostpool_take_back(other, 2), -EINVAL);
	ck_assert_int_eq(hostpool_take_back(fd, 3), -EINVAL);
	ck_assert_int_eq(hostpool_take_back(fd, 2), 0);
	ck_assert_int_eq(hostpool_block(1)->start[7], 'y');
	/* That takes time, and may be cancelled. */
	hostpool_relax(true, &(bool){true});
	ck_assert_int_eq(hostpool_block(1)->start[7], 'y');
	hostpool_relax(true, NULL);
	ck_assert_uint_eq(file_pages(fd), 0);
}
END_TEST

/* A pause that has failed leaves its blocks, and one that was cancelled while it let go of them. */
START_TEST(blocks_that_have_left_a_file_are_in_none)
{
	int fd = memory_file(2 * HOSTPOOL_BLOCK, F_SEAL_SHRINK | F_SEAL_GROW);

	ck_assert_int_eq(hostpool_begin_file(fd), 0);
	ck_assert_int_eq(hostpool_grow(2), 0);
	hostpool_end_file();
	hostpool_empty(1);
	ck_assert(!hostpool_leave(2));
	ck_assert(hostpool_leave(1));
}
END_TEST

/* Whoever else has it would keep them. */
START_TEST(what_is_dropped_leaves_the_file)
{
	int fd = memory_file(3 * HOSTPOOL_BLOCK, F_SEAL_SHRINK | F_SEAL_GROW);
	size_t all;

	ck_assert_int_eq(hostpool_begin_file(fd), 0);
	ck_assert_int_eq(hostpool_grow(3), 0);
	hostpool_end_file();
	ck_assert_int_eq(hostpool_populate(3, NULL), 0);
	all = file_pages(fd);
	not_pinned = hostpool_block(1)->start;
	hostpool_pin(&drv, NULL, 2, NULL);
	ck_assert(!hostpool_leave(3));
	hostpool_drop(NULL);
	ck_assert_uint_eq(hostpool_count(), 1);
	ck_assert_uint_eq(file_pages(fd), all / 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hostpool");
	TCase *tc = tcase_create("hostpool");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_limit_is_read);
	tcase_add_test(tc, a_limit_that_is_given_needs_no_file);
	tcase_add_test(tc, a_query_reads_each_file_once);
	tcase_add_test(tc, what_stays_pinned_is_kept);
	tcase_add_test(tc, what_is_not_pinned_goes_from_before_pinned_blocks_too);
	tcase_add_test(tc, without_descriptors_nothing_is_available);
	tcase_add_test(tc, a_descriptor_is_awaited);
	tcase_add_test(tc, relaxed_pages_are_left);
	tcase_add_test(tc, a_filled_file_becomes_blocks);
	tcase_add_test(tc, what_is_in_a_file_outlives_the_pool);
	tcase_add_test(tc, blocks_that_have_left_a_file_are_in_none);
	tcase_add_test(tc, what_is_dropped_leaves_the_file);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
