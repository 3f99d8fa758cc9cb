/* SPDX-License-Identifier: Apache-2.0 */
/* The locks that keep two jobs from a resume on one GPU, over a driver that only has UUIDs. */
#include "checkpoint/release/release.h"
#include "checkpoint/ledger/contexts.h"
#include "vmem/cuda_driver.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/freemem.h"
#include "common/protocol/rundir.h"

#include "tests/check_suite.h"
#include "common/gpu/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_LOCK "GPU-00070707-0707-0707-0707-070707070707.lock"

#define LAST_LOCK "GPU-02070707-0707-0707-0707-070707070707.lock"
#define OTHER_GPU "GPU-09090909-0909-0909-0909-090909090909"
#define GB        (1UL << 30)

static char free_path[PATH_MAX];
static char base[64];
static size_t carried[GPU_MAX];
static struct gpu_lack lack;

/* The driver's side of a checkpoint: a call while it is locked would not return. */
static struct {
	bool locked, checkpointed;
	CUresult checkpoint, unlock; /* what these calls return */
	int unlocks;
} process;

static CUresult get_count(int *count)
{
	ck_assert(!process.locked);
	*count = 3;
	return CUDA_SUCCESS;
}

/* Device 2 comes before device 0 in the order of the UUIDs. */
static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
	ck_assert(!process.locked);
	memset(uuid, 7, sizeof(*uuid));
	uuid->bytes[0] = 2 - dev;
	return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int size, CUdevice dev)
{
	snprintf(name, size, "GPU %d", dev);
	return CUDA_SUCCESS;
}

static CUresult get_memory(size_t *bytes, CUdevice dev)
{
	*bytes = GB << dev;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	(void)attribute, (void)dev;
	*value = 9;
	return CUDA_SUCCESS;
}

static size_t in_use = 60 * GB;

static CUresult set_current(CUcontext ctx)
{
	(void)ctx;
	ck_assert(!process.locked);
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *free, size_t *total)
{
	ck_assert(!process.locked);
	*total = 80 * GB;
	*free = *total - in_use;
	return CUDA_SUCCESS;
}

static CUresult lock_process(int pid, CUcheckpointLockArgs *args)
{
	(void)pid, (void)args;
	ck_assert(!process.locked);
	process.locked = true;
	return CUDA_SUCCESS;
}

static CUresult checkpoint_process(int pid, CUcheckpointCheckpointArgs *args)
{
	(void)pid, (void)args;
	ck_assert(process.locked && !process.checkpointed);
	process.checkpointed = !process.checkpoint;
	return process.checkpoint;
}

static CUresult restore_process(int pid, CUcheckpointRestoreArgs *args)
{
	(void)pid, (void)args;
	ck_assert(process.checkpointed);
	process.checkpointed = false;
	return CUDA_SUCCESS;
}

static CUresult unlock_process(int pid, CUcheckpointUnlockArgs *args)
{
	(void)pid, (void)args;
	ck_assert(process.locked && !process.checkpointed);
	process.unlocks++;
	process.locked = process.unlock != CUDA_SUCCESS;
	return process.unlock;
}

static const struct cuda_driver drv = {
	.cuDeviceGetCount = get_count,
	.cuDeviceGetUuid_v2 = get_uuid,
	.cuDeviceGetName = get_name,
	.cuDeviceTotalMem_v2 = get_memory,
	.cuDeviceGetAttribute = get_attribute,
	.cuCtxSetCurrent = set_current,
	.cuMemGetInfo_v2 = get_info,
	.cuCheckpointProcessLock = lock_process,
	.cuCheckpointProcessCheckpoint = checkpoint_process,
	.cuCheckpointProcessRestore = restore_process,
	.cuCheckpointProcessUnlock = unlock_process,
};

static void setup(void)
{
	strcpy(base, "/tmp/test-release-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	devices_find(&drv);
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
	struct context contexts[3] = {0};
	struct context_list list = {.items = contexts};
	const char *call;

	for (int dev = 0; dev < 3; dev++)
		if (devices >> dev & 1)
			contexts[list.count++].dev = dev;
	process.locked = process.checkpointed = false;
	ck_assert_int_eq(release_checkpoint(&drv, &list, &call), CUDA_SUCCESS);
}

/* What release_lock() returns to another job, with contexts on @devices. */
static int other_job(unsigned int devices)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		pause_on(devices);
		_exit(-release_lock(carried, &lack) & 0xff);
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

	ck_assert_int_eq(release_lock(carried, &lack), 0); /* nothing was paused */
	pause_on(1 << 0 | 1 << 2);
	lock = release_lock(carried, &lack);
	ck_assert_int_eq(lock, 2);
	ck_assert_int_eq(other_job(1 << 0), -EAGAIN);
	ck_assert_int_eq(other_job(1 << 1 | 1 << 2), -EAGAIN);
	ck_assert_int_eq(other_job(1 << 1), 1);
	release_unlock();
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
	lock = release_lock(carried, &lack);
	ck_assert_int_eq(lock, 1);
	if (!fork()) {
		pause_on(1 << 0 | 1 << 2);
		ck_assert_int_eq(release_lock(carried, &lack), -EAGAIN);
		release_unlock();
		ck_assert_int_eq(other_job(1 << 2), 1);
		_exit(0);
	}
	wait(NULL);
	release_unlock();
	lock = release_lock(carried, &lack);
	ck_assert_int_eq(lock, 1);
	release_unlock();
}
END_TEST

/* The descriptor that is open for the file @name. */
static int descriptor_of(const char *name)
{
	char path[64], file[256];

	for (int fd = 0; fd < 64; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, file, sizeof(file) - 1);
		file[n > 0 ? n : 0] = '\0';
		if (strstr(file, name))
			return fd;
	}
	return -1;
}

START_TEST(a_lock_that_the_program_has_closed)
{
	int lock, number, again, mine = open(base, O_TMPFILE | O_RDWR, 0600);
	char path[64];

	ck_assert_int_ge(mine, 0);
	pause_on(1 << 0);
	lock = release_lock(carried, &lack);
	ck_assert_int_eq(lock, 1);
	number = descriptor_of(".lock");
	ck_assert_int_ge(number, 0);
	ck_assert_int_eq(dup2(mine, number), number);
	ck_assert_int_eq(flock(number, LOCK_EX | LOCK_NB), 0);
	release_unlock();
	/* The program's file is open still, and so is the lock that the program has on it. */
	ck_assert_int_ge(fcntl(number, F_GETFD), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
	again = open(path, O_RDWR);
	ck_assert_int_ge(again, 0);
	ck_assert_int_lt(flock(again, LOCK_EX | LOCK_NB), 0);
}
END_TEST

START_TEST(an_unusable_directory_locks_nothing)
{
	pause_on(1 << 0);
	setenv("CUDAW_RUNTIME_DIR", "not/absolute", 1);
	ck_assert_int_eq(release_lock(carried, &lack), 0);
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert_int_eq(release_lock(carried, &lack), 0);
	release_unlock();
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
	/* None for the directory; none for a lock; none for the second lock. */
	for (int more = 0; more < 3; more++) {
		limit.rlim_cur = next + more;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		ck_assert_int_eq(release_lock(carried, &lack), -EAGAIN);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
	ck_assert_int_eq(other_job(1 << 0 | 1 << 2), 2);
}
END_TEST

START_TEST(a_request_is_stronger_than_the_variable)
{
	struct cuda_driver old = drv;

	old.cuCheckpointProcessRestore = NULL;
	unsetenv("CUDAW_RELEASE");
	ck_assert(release_wanted(&drv, RELEASE_AS_SET));
	ck_assert(!release_wanted(&drv, RELEASE_MEMORY));
	ck_assert(!release_wanted(&old, RELEASE_ALL));
	setenv("CUDAW_RELEASE", "memory", 1);
	ck_assert(!release_wanted(&drv, RELEASE_AS_SET));
	ck_assert(release_wanted(&drv, RELEASE_ALL));
	setenv("CUDAW_RELEASE", "all", 1);
	ck_assert(release_wanted(&drv, RELEASE_AS_SET));
	ck_assert(!release_wanted(&drv, RELEASE_MEMORY));
	unsetenv("CUDAW_RELEASE");
}
END_TEST

/* The list of GPUs follows the job to another GPU, and so do the locks. */
START_TEST(a_restore_on_another_gpu)
{
	CUcheckpointGpuPair pair = {0};
	size_t count;

	get_uuid(&pair.oldUuid, 0);
	memset(&pair.newUuid, 9, sizeof(pair.newUuid));
	pause_on(1 << 0);
	release_remap(&pair, 1);
	ck_assert_str_eq(devices_all(&count)[0].uuid, OTHER_GPU);
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(release_lock(carried, &lack), 1);
	ck_assert_int_ge(descriptor_of(OTHER_GPU ".lock"), 0);
	release_unlock();
}
END_TEST

/* What a failed checkpoint and a failed unlock leave is undone before anything else is called. */
START_TEST(an_unlock_that_fails)
{
	struct context contexts[1] = {{.dev = 0}};
	struct context_list list = {.items = contexts, .count = 1};
	const char *call = "";

	process.checkpoint = CUDA_ERROR_UNKNOWN;
	process.unlock = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(release_checkpoint(&drv, &list, &call), CUDA_ERROR_UNKNOWN);
	ck_assert_str_eq(call, "cuCheckpointProcessCheckpoint");
	ck_assert(release_is_locked());
	ck_assert_int_eq(release_unlock_process(&drv, &call), CUDA_ERROR_NOT_READY);
	ck_assert_str_eq(call, "cuCheckpointProcessUnlock");
	ck_assert(release_fits(carried, &lack)); /* the context is there */
	ck_assert_int_eq(release_restore(&drv, &call), CUDA_ERROR_NOT_READY);
	ck_assert(release_is_locked());
	process.checkpoint = process.unlock = CUDA_SUCCESS;
	ck_assert_int_eq(release_restore(&drv, &call), CUDA_SUCCESS);
	ck_assert(!release_is_locked() && !process.locked);
	ck_assert_int_eq(process.unlocks, 4);
	/* Nothing is left to be done. */
	ck_assert_int_eq(release_unlock_process(&drv, &call), CUDA_SUCCESS);
	ck_assert_int_eq(process.unlocks, 4);
	ck_assert_int_eq(release_checkpoint(&drv, &list, &call), CUDA_SUCCESS);
	/* The same after a restore, which is not made twice. */
	process.unlock = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(release_restore(&drv, &call), CUDA_ERROR_NOT_READY);
	process.unlock = CUDA_SUCCESS;
	ck_assert_int_eq(release_restore(&drv, &call), CUDA_SUCCESS);
	ck_assert(!process.locked);
}
END_TEST

/*
 * Another job, paused as this one is, which is stopped with the lock of device 0 and is about to
 * take @bytes there beside its context; or does not say how
 * much. It ends with what release_fits() says once it goes on.
 */
static pid_t stopped_job(size_t bytes, bool earlier)
{
	int status, dir = open(base, O_RDONLY | O_DIRECTORY);
	pid_t pid = fork();

	if (!pid) {
		carried[0] = bytes;
		if ((earlier ? rundir_lock(dir, LAST_LOCK) : release_lock(carried, &lack)) < 0)
			_exit(2);
		raise(SIGSTOP);
		_exit(release_fits(carried, &lack));
	}
	close(dir);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	return pid;
}

static bool fits_when_continued(pid_t pid)
{
	int status;

	kill(pid, SIGCONT);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_lt(WEXITSTATUS(status), 2);
	return WEXITSTATUS(status);
}

/* How often release_lock() says "not now", asked every 100 ms, 40 times at most. */
static int tries_until_locked(void)
{
	int tries = 0;

	while (tries < 40 && release_lock(carried, &lack) == -EAGAIN) {
		usleep(100000);
		tries++;
	}
	return tries;
}

/* The free memory of each GPU, as freemem.c finds it. */
static void set_free(size_t bytes)
{
	FILE *file = fopen(free_path, "w");

	ck_assert_ptr_nonnull(file);
	fprintf(file, "%zu\n", bytes);
	ck_assert_int_eq(fclose(file), 0);
}

/* freemem.c runs a child. */
static bool child_can_be_asked(void)
{
#ifdef __SANITIZE_THREAD__
	printf("# TSan takes the clone() in freemem.c for a fork\n");
	return false;
#else
	return true;
#endif
}

/* Nothing says how much a context takes here, so that it counts as 1 GiB. */
START_TEST(one_that_is_stopped_with_the_lock_is_passed)
{
	pid_t other;
	int tries;

	if (!child_can_be_asked())
		return;
	pause_on(1 << 0);
	other = stopped_job(10 * GB, false);
	carried[0] = 8 * GB;
	tries = tries_until_locked();
	ck_assert_int_ge(tries, 1);
	ck_assert_int_lt(tries, 40);
	/* What it was promised is left to it. */
	set_free(20 * GB);
	ck_assert(release_fits(carried, &lack));
	set_free(20 * GB - 1);
	ck_assert(!release_fits(carried, &lack));
	ck_assert_int_eq(lack.dev, 0);
	ck_assert_uint_eq(lack.free, 20 * GB - 1);
	ck_assert_uint_eq(lack.needed, 20 * GB);
	/* And when it goes on, it leaves to us what we were promised meanwhile. */
	ck_assert(!fits_when_continued(other));
	set_free(9 * GB);
	ck_assert(release_fits(carried, &lack));
	release_unlock();
	ck_assert_int_eq(tries_until_locked(), 0);
	ck_assert(release_fits(carried, &lack));
}
END_TEST

START_TEST(what_a_context_has_is_no_more_than_is_in_use)
{
	pause_on(1 << 0 | 1 << 2);
	ck_assert_uint_eq(release_held()[0], GB);
	in_use = 100 << 20;
	pause_on(1 << 0 | 1 << 2);
	ck_assert_uint_eq(release_held()[0], in_use);
	ck_assert_uint_eq(release_held()[1], 0);
	ck_assert_uint_eq(release_held()[2], in_use);
}
END_TEST

static void need_more_than_is_free(void)
{
	pause_on(1 << 0);
	carried[0] = 8 * GB;
	set_free(GB);
}

static void check_that_it_is_seen(void)
{
	ck_assert(!release_fits(carried, &lack));
	ck_assert_uint_eq(lack.free, GB);
}

/* NVML knew once, and will again: to restore without an answer could lose the job. */
START_TEST(an_answer_that_does_not_come_any_more_is_waited_for)
{
	if (!child_can_be_asked())
		return;
	pause_on(1 << 0);
	carried[0] = 8 * GB;
	unlink(free_path);
	ck_assert(release_fits(carried, &lack));
	set_free(20 * GB);
	ck_assert(release_fits(carried, &lack));
	unlink(free_path);
	ck_assert(!release_fits(carried, &lack));
	set_free(20 * GB);
	ck_assert(release_fits(carried, &lack));
}
END_TEST

/* The child needs descriptors, too. */
START_TEST(a_program_that_leaves_descriptors_for_the_question_alone)
{
	const struct rlimit limit = {64, 64};
	int last[2] = {-1, -1}, fd;

	if (!child_can_be_asked())
		return;
	need_more_than_is_free();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while ((fd = dup(STDIN_FILENO)) >= 0) {
		last[0] = last[1];
		last[1] = fd;
	}
	close(last[0]);
	close(last[1]);
	check_that_it_is_seen();
}
END_TEST

/* The pipe for the answer then takes their numbers. */
START_TEST(a_program_without_standard_descriptors)
{
	if (!child_can_be_asked())
		return;
	need_more_than_is_free();
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	check_that_it_is_seen();
}
END_TEST

START_TEST(a_program_that_ignores_its_children)
{
	const struct sigaction ways[] = {{.sa_handler = SIG_IGN},
					 {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT}};
	struct sigaction kept;

	if (!child_can_be_asked())
		return;
	need_more_than_is_free();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sigaction(SIGCHLD, &ways[i], NULL), 0);
		lack.free = 0;
		check_that_it_is_seen();
		ck_assert_int_eq(sigaction(SIGCHLD, NULL, &kept), 0);
		ck_assert_ptr_eq(kept.sa_handler, ways[i].sa_handler);
		ck_assert_int_eq(kept.sa_flags & SA_NOCLDWAIT, ways[i].sa_flags);
	}
	signal(SIGCHLD, SIG_DFL); /* for teardown() */
}
END_TEST

/* From now on the program that is asked answers once something is written to the pipe at free_path. */
static void answer_later(void)
{
	need_more_than_is_free();
	unlink(free_path);
	ck_assert_int_eq(mkfifo(free_path, 0600), 0);
}

/* Returns when the program that is asked waits. */
static int open_answer(void)
{
	int fd = open(free_path, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	unlink(free_path);
	return fd;
}

static void *ask_main(void *arg)
{
	(void)arg;
	check_that_it_is_seen();
	return NULL;
}

START_TEST(descriptors_that_the_program_closes_meanwhile)
{
	struct pollfd end = {.events = POLLIN};
	int fds[2], answer;
	pthread_t thread;

	if (!child_can_be_asked())
		return;
	answer_later();
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_main, NULL), 0);
	answer = open_answer();
	close(fds[1]);
	end.fd = fds[0];
	ck_assert_int_eq(poll(&end, 1, 0), 1);
	ck_assert_int_eq(end.revents, POLLHUP);
	dprintf(answer, "%lu\n", GB);
	close(answer);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* NVML may never answer it. */
START_TEST(what_is_asked_ends_with_the_program)
{
	struct pollfd answer = {0};
	pid_t pid;

	if (!child_can_be_asked())
		return;
	answer_later();
	pid = fork();
	if (!pid)
		ask_main(NULL);
	answer.fd = open_answer();
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(poll(&answer, 1, -1), 1);
	ck_assert_int_eq(answer.revents, POLLERR);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

static bool can_be_jailed(void)
{
	if (!geteuid())
		return child_can_be_asked();
	printf("# only root can have another root directory, and become another user\n");
	return false;
}

/* The descriptor leads to it. It answers nothing now, for which a resume waits. */
START_TEST(a_program_that_may_not_enter_our_directory_any_more)
{
	char command[2 * PATH_MAX];
	bool fits;

	if (!can_be_jailed())
		return;
	need_more_than_is_free();
	check_that_it_is_seen();
	snprintf(command, sizeof(command), "install /bin/true %s/" FREEMEM_PROGRAM,
		 getenv("TEST_DIRECTORY"));
	ck_assert_int_eq(system(command), 0);
	freemem_find();
	ck_assert_int_eq(seteuid(54321), 0);
	fits = release_fits(carried, &lack);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert(!fits);
}
END_TEST

/* What the program needs is not there, and never will be. */
START_TEST(a_program_with_another_root_directory)
{
	int status;
	pid_t pid;

	if (!can_be_jailed())
		return;
	need_more_than_is_free();
	check_that_it_is_seen();
	freemem_find();
	pid = fork();
	if (!pid)
		_exit(chroot(base) || chdir("/") || !release_fits(carried, &lack));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(one_that_does_not_say_what_it_takes_is_waited_for)
{
	pid_t other;

	pause_on(1 << 0);
	other = stopped_job(0, true);
	set_free(GB);
	ck_assert_int_eq(tries_until_locked(), 40);
	fits_when_continued(other);
	ck_assert_int_eq(tries_until_locked(), 0);
}
END_TEST

/*
 * freemem.c runs the program beside the file that it is in: have that in a directory of its own,
 * with one that prints what set_free() was told.
 */
static int run_in(const char *directory)
{
	char self[PATH_MAX], program[PATH_MAX], test[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *argv[] = {test, NULL};
	FILE *file;

	snprintf(program, sizeof(program), "%s/" FREEMEM_PROGRAM, directory);
	file = fopen(program, "w");
	if (length < 0 || !file)
		return -1;
	fprintf(file, "#!/bin/sh\nread free < %s/free\nfor gpu; do echo $free; done\n", directory);
	fchmod(fileno(file), 0700);
	fclose(file);
	self[length] = '\0';
	snprintf(test, sizeof(test), "%s/test_release", directory);
	if (symlink(self, test))
		return -1;
	setenv("TEST_DIRECTORY", directory, 1);
	return execv(test, argv);
}

int main(void)
{
	Suite *s = suite_create("release");
	TCase *tc = tcase_create("release");
	char directory[] = "/tmp/test-release-XXXXXX", command[128];
	int status;

	if (!getenv("TEST_DIRECTORY"))
		return mkdtemp(directory) ? run_in(directory) : -1;
	snprintf(free_path, sizeof(free_path), "%s/free", getenv("TEST_DIRECTORY"));
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, one_job_resumes_at_a_time);
	tcase_add_test(tc, a_failed_attempt_holds_nothing);
	tcase_add_test(tc, a_lock_that_the_program_has_closed);
	tcase_add_test(tc, an_unusable_directory_locks_nothing);
	tcase_add_test(tc, without_descriptors_it_waits);
	tcase_add_test(tc, one_that_is_stopped_with_the_lock_is_passed);
	tcase_add_test(tc, what_a_context_has_is_no_more_than_is_in_use);
	tcase_add_test(tc, an_answer_that_does_not_come_any_more_is_waited_for);
	tcase_add_test(tc, a_program_that_leaves_descriptors_for_the_question_alone);
	tcase_add_test(tc, a_program_without_standard_descriptors);
	tcase_add_test(tc, a_program_that_ignores_its_children);
	tcase_add_test(tc, descriptors_that_the_program_closes_meanwhile);
	tcase_add_test(tc, what_is_asked_ends_with_the_program);
	tcase_add_test(tc, a_program_with_another_root_directory);
	tcase_add_test(tc, one_that_does_not_say_what_it_takes_is_waited_for);
	tcase_add_test(tc, a_request_is_stronger_than_the_variable);
	tcase_add_test(tc, a_restore_on_another_gpu);
	tcase_add_test(tc, an_unlock_that_fails);
	tcase_add_test(
		tc, a_program_that_may_not_enter_our_directory_any_more); /* of the others, too */
	suite_add_tcase(s, tc);
	status = check_suite_run(s);
	snprintf(command, sizeof(command), "rm -rf %s", getenv("TEST_DIRECTORY"));
	return system(command) ? -1 : status;
}
