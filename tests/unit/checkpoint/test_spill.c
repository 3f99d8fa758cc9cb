/* SPDX-License-Identifier: Apache-2.0 */
/* The file of CUDAW_SPILL_DIR keeps what is in it, or says that it is gone. */
#include "checkpoint/host/spill.h"
#include "tests/check_suite.h"
#include "tests/unit/few_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE (64UL << 10)

/* The file may be open with O_DIRECT. */
static char part[SIZE] __attribute__((aligned(4096))), found[SIZE] __attribute__((aligned(4096)));
static int fd; /* the number that the file gets */

static void setup(void)
{
	setenv("CUDAW_SPILL_DIR", "/var/tmp", 1);
	signal(SIGXFSZ, SIG_IGN);
	fd = dup(0);
	close(fd);
	memset(part, 1, SIZE);
	ck_assert_int_eq(spill_open(SIZE, true), 0);
	ck_assert_int_eq(spill_write(part, SIZE, 0), 0);
}

static void check_part(void)
{
	ck_assert_int_eq(spill_read(found, SIZE, 0), 0);
	ck_assert_mem_eq(found, part, SIZE);
}

START_TEST(no_room_for_more_leaves_what_is_there)
{
	const struct rlimit limit = {2 * SIZE, RLIM_INFINITY};

	ck_assert_uint_gt(spill_space(), 2 * SIZE);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_uint_eq(spill_space(), 2 * SIZE);
	ck_assert_int_eq(spill_open(4 * SIZE, true), -EFBIG);
	check_part();
	ck_assert_int_eq(spill_open(2 * SIZE, true), 0);
	check_part();
}
END_TEST

/* A new file in its place would have zeros for the part. */
START_TEST(one_that_the_program_has_closed_is_not_made_anew)
{
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(spill_open(2 * SIZE, true), -EBADF);
	spill_close();
	ck_assert_int_eq(spill_open(SIZE, true), 0);
}
END_TEST

START_TEST(memory_is_no_disk)
{
	spill_close();
	setenv("CUDAW_SPILL_DIR", "/dev/shm", 1);
	ck_assert_uint_eq(spill_space(), 0);
	ck_assert_int_eq(spill_open(SIZE, true), -ENOENT);
}
END_TEST

static void use_filter(struct sock_filter *filter, size_t len)
{
	const struct sock_fprog program = {(unsigned short)len, filter};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* As NFS 3, and others, cannot make a file without a name or reserve room. */
static void do_without(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

	use_filter(filter, sizeof(filter) / sizeof(*filter));
}

START_TEST(a_file_system_may_lack_unnamed_files_and_reservations)
{
	char dir[] = "/var/tmp/test-spill-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(dir));
	spill_close();
	setenv("CUDAW_SPILL_DIR", dir, 1);
	do_without();
	ck_assert_int_eq(spill_open(SIZE, true), -EOPNOTSUPP);
	ck_assert_int_eq(spill_open(SIZE, false), 0);
	ck_assert_int_eq(rmdir(dir), 0); /* nothing is in it */
	ck_assert_int_eq(spill_open(2 * SIZE, false), 0);
	ck_assert_int_eq(spill_write(part, SIZE, SIZE), 0);
	ck_assert_int_eq(spill_open(2 * SIZE, true), -EOPNOTSUPP);
	ck_assert_int_eq(spill_read(found, SIZE, SIZE), 0);
	ck_assert_mem_eq(found, part, SIZE);
}
END_TEST

/* O_DIRECT is refused by fcntl(), or by the writes. */
static const struct {
	unsigned int call, argument, value;
} refused[] = {{SYS_fcntl, 1, F_SETFL}, {SYS_pwrite64, 2, 4096}};

/* Else a write succeeds that finds no room later. */
START_TEST(through_the_page_cache_a_write_waits_for_the_disk)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[_i].call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[refused[_i].argument])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[_i].value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

	spill_close();
	use_filter(filter, sizeof(filter) / sizeof(*filter));
	ck_assert_int_eq(spill_open(SIZE, true), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & (O_DIRECT | O_DSYNC), O_DSYNC);
	ck_assert_int_eq(spill_write(part, SIZE, 0), 0);
	check_part();
}
END_TEST

/* Other threads of a program with few may have the last one for a moment. */
START_TEST(a_descriptor_is_awaited)
{
	spill_close();
	take_descriptors(_i);
	ck_assert_int_eq(spill_open(SIZE, true), _i ? 0 : -EMFILE);
	allow_descriptors(64);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spill");
	TCase *tc = tcase_create("spill");

	tcase_add_checked_fixture(tc, setup, spill_close);
	tcase_add_test(tc, no_room_for_more_leaves_what_is_there);
	tcase_add_test(tc, one_that_the_program_has_closed_is_not_made_anew);
	tcase_add_test(tc, memory_is_no_disk);
	tcase_add_test(tc, a_file_system_may_lack_unnamed_files_and_reservations);
	tcase_add_loop_test(tc, through_the_page_cache_a_write_waits_for_the_disk, 0,
			    sizeof(refused) / sizeof(refused[0]));
	tcase_add_loop_test(tc, a_descriptor_is_awaited, 0, 2);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
