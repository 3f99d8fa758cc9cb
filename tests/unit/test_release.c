/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that keep two jobs from a resume on one GPU, over a driver that only has UUIDs. */
#include "checkpoint/release.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_LOCK "GPU-00070707-0707-0707-0707-070707070707.lock"

static char base[64];

static CUresult get_count(int *count)
{
	*count = 3;
	return CUDA_SUCCESS;
}

/* Device 2 comes before device 0 in the order of the UUIDs. */
static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
	memset(uuid, 7, sizeof(*uuid));
	uuid->bytes[0] = 2 - dev;
	return CUDA_SUCCESS;
}

static CUresult lock_process(int pid, CUcheckpointLockArgs *args)
{
	(void)pid, (void)args;
	return CUDA_SUCCESS;
}

static CUresult checkpoint_process(int pid, CUcheckpointCheckpointArgs *args)
{
	(void)pid, (void)args;
	return CUDA_SUCCESS;
}

static const struct cuda_driver drv = {
	.cuDeviceGetCount = get_count,
	.cuDeviceGetUuid_v2 = get_uuid,
	.cuCheckpointProcessLock = lock_process,
	.cuCheckpointProcessCheckpoint = checkpoint_process,
};

static void setup(void)
{
	strcpy(base, "/tmp/test-release-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	setenv("CUDAW_RUNTIME_DIR", base, 1);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* Pause with contexts on the devices of the bits in @devices. */
static void pause_on(unsigned int devices)
{
	struct context list[3] = {0};
	const char *call;
	size_t count = 0;

	for (int dev = 0; dev < 3; dev++)
		if (devices >> dev & 1)
			list[count++].dev = dev;
	ck_assert_int_eq(release_checkpoint(&drv, list, count, &call), CUDA_SUCCESS);
}

/* What release_lock() returns to another job, with contexts on @devices. */
static int other_job(unsigned int devices)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		pause_on(devices);
		_exit(-release_lock() & 0xff);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return -(signed char)WEXITSTATUS(status);
}

START_TEST(one_job_resumes_at_a_time)
{
	char path[128];
	struct stat st;
	int lock;

	ck_assert_int_eq(release_lock(), 0); /* nothing was paused */
	pause_on(1 << 0 | 1 << 2);
	lock = release_lock();
	ck_assert_int_eq(lock, 2);
	ck_assert_int_eq(other_job(1 << 0), -EAGAIN);
	ck_assert_int_eq(other_job(1 << 1 | 1 << 2), -EAGAIN);
	ck_assert_int_eq(other_job(1 << 1), 1);
	release_unlock(lock);
	ck_assert_int_eq(other_job(1 << 0 | 1 << 1 | 1 << 2), 3);

	snprintf(path, sizeof(path), "%s/" FIRST_LOCK, base);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(a_failed_attempt_holds_nothing)
{
	int lock;

	pause_on(1 << 0);
	lock = release_lock();
	ck_assert_int_eq(lock, 1);
	if (!fork()) {
		pause_on(1 << 0 | 1 << 2);
		ck_assert_int_eq(release_lock(), -EAGAIN);
		release_unlock(-EAGAIN);
		ck_assert_int_eq(other_job(1 << 2), 1);
		_exit(0);
	}
	wait(NULL);
	release_unlock(lock);
	lock = release_lock();
	ck_assert_int_eq(lock, 1);
	release_unlock(lock);
}
END_TEST

START_TEST(an_unusable_folder_locks_nothing)
{
	pause_on(1 << 0);
	setenv("CUDAW_RUNTIME_DIR", "not/absolute", 1);
	ck_assert_int_eq(release_lock(), 0);
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert_int_eq(release_lock(), 0);
	release_unlock(0);
}
END_TEST

START_TEST(without_descriptors_it_waits)
{
	int next = dup(STDIN_FILENO);
	struct rlimit saved, limit;

	ck_assert_int_eq(close(next), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
	limit = saved;
	pause_on(1 << 0 | 1 << 2);
	/* None for the folder; none for a lock; none for the second lock. */
	for (int more = 0; more < 3; more++) {
		limit.rlim_cur = next + more;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		ck_assert_int_eq(release_lock(), -EAGAIN);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
	ck_assert_int_eq(other_job(1 << 0 | 1 << 2), 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("release");
	TCase *tc = tcase_create("release");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, one_job_resumes_at_a_time);
	tcase_add_test(tc, a_failed_attempt_holds_nothing);
	tcase_add_test(tc, an_unusable_folder_locks_nothing);
	tcase_add_test(tc, without_descriptors_it_waits);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
