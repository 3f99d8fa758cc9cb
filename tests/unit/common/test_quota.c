/* SPDX-License-Identifier: Apache-2.0 */
/* The quotas of a job: which are set, and what its processes have of them together. */
#include "common/protocol/quota.h"
#include "common/protocol/rundir.h"
#include "common/gpu/gpu.h"
#include "common/system/forks.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB   (1UL << 20)
#define GIB   (1UL << 30)
#define GPU   "GPU-00000000-0000-0000-0000-000000000001"
#define OTHER "GPU-00000000-0000-0000-0000-000000000002"
#define THIRD "GPU-00000000-0000-0000-0000-000000000003"

static char directory[] = "/tmp/cudaw-quota-XXXXXX", file[64];

static void begin(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(file, sizeof(file), "%s/abcdef" RUNDIR_QUOTA_SUFFIX, directory);
	setenv("CUDAW_RUNTIME_DIR", directory, 1);
	setenv("CUDAW_JOB", "abcdef", 1);
	forks_watch();
}

static void end(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	ck_assert_int_eq(system(command), 0);
}

static void name_gpu(const char *uuid)
{
	struct gpu gpu = {0};

	strcpy(gpu.uuid, uuid);
	quota_name_gpus(&gpu, 1);
}

static size_t used_of(const char *uuid)
{
	size_t used = SIZE_MAX, quota;

	ck_assert(quota_used_of(uuid, &used, &quota));
	return used;
}

/* The process has a GPU 0 with a quota of 100 MiB. */
static void begin_with_quota(void)
{
	begin();
	setenv("CUDAW_MEM", "100M", 1);
	name_gpu(GPU);
}

static size_t rows(void)
{
	struct stat st;

	return stat(file, &st) ? 0 : (size_t)st.st_size / 64;
}

/* The number of the descriptor by which this process has the account open; -1: it has not. */
static int descriptor(void)
{
	struct stat account, st;

	for (int fd = 0; !stat(file, &account) && fd < 100; fd++)
		if (!fstat(fd, &st) && st.st_ino == account.st_ino && st.st_dev == account.st_dev)
			return fd;
	return -1;
}

static int lasting[2]; /* a pipe */

/* Run @body in a child, which waits then until its end of the returned descriptor is closed. */
static pid_t child(void (*body)(void), int *lead)
{
	int done[2], go[2];
	char byte;
	pid_t pid;

	ck_assert(!pipe(done) && !pipe(go));
	pid = fork();
	if (!pid) {
		close(go[1]);
		name_gpu(GPU);
		body();
		(void)!write(done[1], "", 1);
		(void)!read(go[0], &byte, 1);
		_exit(0);
	}
	close(done[1]);
	close(go[0]);
	ck_assert_int_eq(read(done[0], &byte, 1), 1);
	close(done[0]);
	*lead = go[1];
	return pid;
}

static void takes_60(void)
{
	if (!quota_take(0, 60 * MIB))
		_exit(1);
}

START_TEST(no_variable_no_quota)
{
	ck_assert(!quota_is_on());
	ck_assert_uint_eq(quota_of(0), SIZE_MAX);
	ck_assert(quota_take(0, SIZE_MAX) && quota_take(0, SIZE_MAX));
	ck_assert_uint_eq(quota_left(0), SIZE_MAX);
	ck_assert_uint_eq(rows(), 0);
}
END_TEST

static const struct {
	const char *mem, *every, *first;
	size_t quota[2];
} values[] = {
	{"20G", NULL, NULL, {20 * GIB, 20 * GIB}},
	{NULL, "4147m", NULL, {4147 * MIB, 4147 * MIB}},
	{NULL, "1g", "512M", {512 * MIB, GIB}},
	{NULL, "1048576k", "2g", {2 * GIB, GIB}},
	{NULL, "1073741824", "0", {GIB, GIB}},
	{NULL, NULL, "1g", {GIB, SIZE_MAX}},
	{"600M", "1g", "512m", {512 * MIB, 600 * MIB}},
	{"2G", "none", "1g", {GIB, 2 * GIB}},
	{"1M", NULL, NULL, {SIZE_MAX, SIZE_MAX}},
	{NULL, "0", NULL, {SIZE_MAX, SIZE_MAX}},
	{NULL, "1.5g", "", {SIZE_MAX, SIZE_MAX}},
};

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

START_TEST(the_least_quota_counts)
{
	set("CUDAW_MEM", values[_i].mem);
	set("CUDA_DEVICE_MEMORY_LIMIT", values[_i].every);
	set("CUDA_DEVICE_MEMORY_LIMIT_0", values[_i].first);
	for (int dev = 0; dev < 2; dev++)
		ck_assert_uint_eq(quota_of(dev), values[_i].quota[dev]);
	ck_assert_int_eq(quota_is_on(), quota_of(0) != SIZE_MAX || quota_of(1) != SIZE_MAX);
	ck_assert_uint_eq(quota_of(-1), SIZE_MAX);
	ck_assert_uint_eq(quota_of(64), SIZE_MAX);
}
END_TEST

START_TEST(a_process_has_no_more_than_its_quota)
{
	ck_assert(quota_take(0, 60 * MIB));
	quota_begin();
	ck_assert(!quota_has_refused());
	ck_assert(!quota_take(0, 41 * MIB) && quota_has_refused());
	ck_assert(!quota_take(0, SIZE_MAX));
	ck_assert(quota_take(0, 40 * MIB) && !quota_has_refused());
	ck_assert_uint_eq(quota_left(0), 0);
	quota_give(0, 60 * MIB);
	ck_assert_uint_eq(quota_left(0), 60 * MIB);
	quota_give(0, SIZE_MAX);
	ck_assert_uint_eq(quota_left(0), 100 * MIB);
	ck_assert_uint_eq(rows(), 1);
}
END_TEST

START_TEST(processes_of_a_job_share_it)
{
	size_t quota = 0, used;
	int lead;
	pid_t pid = child(takes_60, &lead);

	ck_assert(!quota_take(0, 41 * MIB));
	ck_assert(quota_take(0, 40 * MIB));
	ck_assert(quota_used_of(GPU, &used, &quota));
	ck_assert_uint_eq(used, 100 * MIB);
	ck_assert_uint_eq(quota, 100 * MIB);
	ck_assert_uint_eq(used_of(OTHER), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_uint_eq(quota_left(0), 60 * MIB);
	ck_assert(quota_take(0, 60 * MIB));
	close(lead);
}
END_TEST

/* One that has ended is noticed when the memory is needed, too. */
START_TEST(a_killed_process_leaves_its_part)
{
	int lead;
	pid_t pid;

	ck_assert(quota_take(0, 10 * MIB));
	pid = child(takes_60, &lead);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert(quota_take(0, 90 * MIB));
	close(lead);
	/* The next process takes its row. */
	quota_give(0, 90 * MIB);
	pid = child(takes_60, &lead);
	ck_assert_uint_eq(rows(), 2);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

static void takes_60_of_another_job(void)
{
	setenv("CUDAW_JOB", "fedcba", 1);
	takes_60();
}

static void takes_60_of_another_gpu(void)
{
	name_gpu(OTHER);
	takes_60();
}

START_TEST(other_jobs_and_gpus_are_apart)
{
	int leads[2];
	pid_t pids[] = {child(takes_60_of_another_job, &leads[0]),
			child(takes_60_of_another_gpu, &leads[1])};

	ck_assert(quota_take(0, 100 * MIB));
	close(leads[0]);
	close(leads[1]);
	waitpid(pids[0], NULL, 0);
	waitpid(pids[1], NULL, 0);
}
END_TEST

#define CROWD 4

static int counts[2];

/* Says how much it was, and keeps it until all have said it. */
static void takes_all_that_it_gets(int go)
{
	unsigned char taken = 0;

	name_gpu(GPU);
	while (quota_take(0, MIB))
		taken++;
	(void)!write(counts[1], &taken, 1);
	(void)!read(go, &taken, 1);
	_exit(0);
}

START_TEST(a_crowd_gets_all_of_it_and_no_more)
{
	unsigned int taken = 0;
	unsigned char count;
	int go[2];

	ck_assert(!pipe(counts) && !pipe(go));
	for (int i = 0; i < CROWD; i++)
		if (!fork()) {
			close(go[1]);
			takes_all_that_it_gets(go[0]);
		}
	for (int i = 0; i < CROWD; i++) {
		ck_assert_int_eq(read(counts[0], &count, 1), 1);
		taken += count;
	}
	ck_assert_uint_eq(taken, 100);
	close(go[1]);
	while (wait(NULL) > 0)
		;
}
END_TEST

START_TEST(a_fork_has_nothing)
{
	int lead;
	pid_t pid;

	ck_assert(quota_take(0, 40 * MIB));
	pid = child(takes_60, &lead);
	ck_assert_uint_eq(quota_left(0), 0);
	close(lead);
	waitpid(pid, NULL, 0);
	ck_assert_uint_eq(quota_left(0), 60 * MIB);
}
END_TEST

/* Nothing of the account is in an image of the process. What it has does not count meanwhile, and whoever asks changes nothing. */
START_TEST(a_restored_process_has_its_place_again)
{
	ck_assert(quota_take(0, 40 * MIB));
	ck_assert_int_ge(descriptor(), 0);
	quota_imaged(true);
	ck_assert_uint_eq(quota_left(0), 60 * MIB);
	ck_assert_int_lt(descriptor(), 0);
	ck_assert_uint_eq(used_of(GPU), 0);
	quota_imaged(false);
	ck_assert_uint_eq(used_of(GPU), 40 * MIB);
	/* Or it is another machine, and another GPU. */
	quota_imaged(true);
	ck_assert_int_eq(unlink(file), 0);
	quota_restored();
	ck_assert_uint_eq(used_of(GPU), 40 * MIB);
	name_gpu(OTHER);
	ck_assert_uint_eq(used_of(OTHER), 40 * MIB);
	ck_assert_uint_eq(used_of(GPU), 0);
}
END_TEST

/* As by closefrom(3). Another file of the program's then has the number. */
START_TEST(a_program_may_close_its_descriptors)
{
	int fd, lead;
	pid_t pid;

	ck_assert(quota_take(0, 40 * MIB));
	fd = descriptor();
	ck_assert_int_ge(fd, 3);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(dup2(STDIN_FILENO, fd), fd);
	quota_look();
	pid = child(takes_60, &lead);
	ck_assert_uint_eq(quota_left(0), 0);
	ck_assert_int_eq(close(descriptor()), 0);
	quota_give(0, 10 * MIB);
	ck_assert_uint_eq(quota_left(0), 10 * MIB);
	ck_assert_uint_eq(used_of(GPU), 90 * MIB);
	ck_assert_int_eq(close(fd), 0);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

/* As one that has become another user, or has another root directory. */
START_TEST(a_program_that_no_longer_finds_the_file_stays_in_it)
{
	int lead;
	pid_t pid = child(takes_60, &lead);

	ck_assert(quota_take(0, 10 * MIB));
	setenv("CUDAW_RUNTIME_DIR", "/proc/none", 1);
	ck_assert_int_eq(chmod(directory, 0), 0);
	ck_assert(quota_take(0, 30 * MIB) && !quota_take(0, 1));
	ck_assert_int_eq(chmod(directory, 0700), 0);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

/* As NVML's face, which is loaded before its program does so. */
START_TEST(a_reader_finds_the_account_where_it_was_loaded)
{
	int lead;
	pid_t pid = child(takes_60, &lead);

	quota_find();
	setenv("CUDAW_RUNTIME_DIR", "/proc/none", 1);
	ck_assert_uint_eq(used_of(GPU), 60 * MIB);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

/* It makes no directory. */
START_TEST(a_reader_that_finds_no_directory_sees_nothing)
{
	char none[96];

	snprintf(none, sizeof(none), "%s/none", directory);
	setenv("CUDAW_RUNTIME_DIR", none, 1);
	ck_assert_uint_eq(used_of(GPU), 0);
	ck_assert_int_ne(access(none, F_OK), 0);
}
END_TEST

static bool is_there(const char *path)
{
	return !access(path, F_OK);
}

static void takes_10(void)
{
	if (!quota_take(0, 10 * MIB))
		_exit(1);
}

/* What is freed or looked at afterwards makes no new file. */
static void takes_60_and_ends(void)
{
	takes_60();
	quota_end();
	quota_left(0);
}

/* What a process has counts until the kernel has ended it, which frees its memory. */
START_TEST(the_last_process_removes_the_file)
{
	int leads[2];
	pid_t pids[2] = {child(takes_10, &leads[0]), child(takes_60_and_ends, &leads[1])};

	ck_assert(is_there(file));
	ck_assert_uint_eq(quota_left(0), 30 * MIB);
	close(leads[1]);
	waitpid(pids[1], NULL, 0);
	ck_assert_uint_eq(quota_left(0), 90 * MIB);
	close(leads[0]);
	waitpid(pids[0], NULL, 0);
	pids[0] = child(takes_60_and_ends, &leads[0]);
	ck_assert(!is_there(file));
	close(leads[0]);
	waitpid(pids[0], NULL, 0);
}
END_TEST

/* What may be in a directory that the user has other things in. */
static const char *const others[] = {"memory", ".memory", "notes.memory", "abcdef1.memory",
				     "abcdea.memory.1"};

static char *path_of(const char *name)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void make_others(void)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		close(open(path_of(others[i]), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	ck_assert_int_eq(mkfifo(path_of("abcdee.memory"), 0600), 0);
}

static void check_others(void)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		ck_assert_msg(is_there(path_of(others[i])), "%s is gone", others[i]);
	ck_assert(is_there(path_of("abcdee.memory")));
}

/* It is removed by who opens another one. What is in use stays, and what is none. */
START_TEST(the_file_of_a_killed_job_goes)
{
	char gone[96];
	int leads[2];
	pid_t pids[2] = {child(takes_60_of_another_job, &leads[0]), child(takes_60, &leads[1])};

	snprintf(gone, sizeof(gone), "%s/fedcba" RUNDIR_QUOTA_SUFFIX, directory);
	make_others();
	ck_assert(is_there(gone) && is_there(file));
	kill(pids[0], SIGKILL);
	waitpid(pids[0], NULL, 0);
	setenv("CUDAW_JOB", "aaaaaa", 1);
	ck_assert(quota_take(0, MIB));
	ck_assert(!is_there(gone) && is_there(file));
	check_others();
	close(leads[0]);
	close(leads[1]);
	waitpid(pids[1], NULL, 0);
}
END_TEST

/* Somebody may clean /tmp. */
START_TEST(a_file_that_was_removed_is_made_again)
{
	int lead;
	pid_t pid;

	ck_assert(quota_take(0, 30 * MIB));
	ck_assert_int_eq(unlink(file), 0);
	quota_give(0, 10 * MIB);
	ck_assert(quota_take(0, 20 * MIB));
	ck_assert_uint_eq(used_of(GPU), 40 * MIB);
	ck_assert_int_eq(unlink(file), 0);
	pid = child(takes_60, &lead);
	ck_assert_uint_eq(quota_left(0), 0);
	ck_assert_uint_eq(used_of(GPU), 100 * MIB);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

/* Also of those GPUs of which nothing is allocated. */
START_TEST(all_gpus_count_again)
{
	const struct gpu gpus[] = {{.uuid = GPU}, {.uuid = OTHER}};

	quota_name_gpus(gpus, 2);
	ck_assert(quota_take(0, 60 * MIB) && quota_take(1, 10 * MIB));
	ck_assert_int_eq(unlink(file), 0);
	ck_assert(quota_take(1, 20 * MIB));
	ck_assert_uint_eq(used_of(GPU), 60 * MIB);
	ck_assert_int_eq(unlink(file), 0);
	quota_look();
	ck_assert_uint_eq(used_of(GPU), 60 * MIB);
	ck_assert_uint_eq(used_of(OTHER), 30 * MIB);
}
END_TEST

/* As NFS removes a file that is open: it has a link still. */
START_TEST(a_file_of_another_name_is_no_longer_the_account)
{
	int lead;
	pid_t pid;

	ck_assert(quota_take(0, 30 * MIB));
	ck_assert_int_eq(rename(file, path_of("aside")), 0);
	pid = child(takes_60, &lead);
	ck_assert_uint_eq(quota_left(0), 10 * MIB);
	ck_assert_uint_eq(used_of(GPU), 90 * MIB);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

/* As in another root directory, where the path leads to the file of another job. */
START_TEST(a_namesake_of_the_file_stays)
{
	ck_assert(quota_take(0, 30 * MIB));
	ck_assert_int_eq(rename(file, path_of("aside")), 0);
	close(open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	quota_end();
	ck_assert(is_there(file));
}
END_TEST

/* Which takes another process some time. */
static void await_all(void)
{
	while (quota_left(0) != 100 * MIB)
		usleep(1000);
}

/* A child of fork() that lives on. */
static void takes_60_and_forks(void)
{
	char byte;

	takes_60();
	if (!fork()) {
		(void)!read(lasting[0], &byte, 1);
		_exit(0);
	}
}

START_TEST(a_fork_does_not_keep_the_part_of_its_parent)
{
	int lead;
	pid_t pid;

	ck_assert(!pipe(lasting));
	pid = child(takes_60_and_forks, &lead);
	ck_assert_uint_eq(quota_left(0), 40 * MIB);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	await_all();
	close(lead);
	close(lasting[0]);
	close(lasting[1]);
}
END_TEST

static void takes_60_and_calls_exec(void)
{
	takes_60();
	if (!fork())
		return; /* which says that it has begun */
	execlp("sleep", "sleep", "1000", NULL);
}

/* The driver frees the memory then, too. */
START_TEST(exec_gives_the_part_back)
{
	int lead;
	pid_t pid = child(takes_60_and_calls_exec, &lead);

	await_all();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(lead);
}
END_TEST

START_TEST(memory_that_moves_to_other_gpus_counts_there_alone)
{
	struct gpu gpus[] = {{.uuid = GPU}, {.uuid = OTHER}}, moved = {.uuid = THIRD};
	const struct gpu swapped[] = {gpus[1], gpus[0]};

	quota_name_gpus(gpus, 2);
	ck_assert(quota_take(0, 60 * MIB) && quota_take(1, 10 * MIB));
	quota_name_gpus(swapped, 2);
	ck_assert_uint_eq(used_of(OTHER), 60 * MIB);
	ck_assert_uint_eq(used_of(GPU), 10 * MIB);
	quota_name_gpus(&moved, 1);
	ck_assert_uint_eq(used_of(THIRD), 60 * MIB);
	ck_assert_uint_eq(used_of(OTHER), 0);
	ck_assert_uint_eq(used_of(GPU), 10 * MIB);
	ck_assert_uint_eq(quota_left(0), 40 * MIB);
}
END_TEST

static void is_refused_60(void)
{
	if (quota_take(0, 60 * MIB))
		_exit(1);
}

/* What a process is cannot be seen: it counts alone until then, and not under a wrong name afterwards. */
START_TEST(a_lack_of_descriptors_passes)
{
	struct rlimit before, none;
	int lead, status;
	pid_t pid;

	ck_assert(!getrlimit(RLIMIT_NOFILE, &before));
	setenv("CUDAW_MEM", "100M", 1);
	none = (struct rlimit){0, before.rlim_max};
	ck_assert(!setrlimit(RLIMIT_NOFILE, &none));
	name_gpu(GPU);
	ck_assert(quota_take(0, 50 * MIB));
	errno = 0;
	ck_assert(!quota_take(0, 51 * MIB));
	ck_assert_int_eq(errno, 0);
	ck_assert(!setrlimit(RLIMIT_NOFILE, &before));
	ck_assert_uint_eq(quota_left(0), 50 * MIB);
	pid = child(is_refused_60, &lead);
	close(lead);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Without assertions, which write to a file themselves. */
static bool counts_without_a_file_size(void)
{
	const struct rlimit none = {0, RLIM_INFINITY};
	sigset_t set;

	setrlimit(RLIMIT_FSIZE, &none);
	if (!quota_take(0, 60 * MIB) || quota_take(0, 60 * MIB) || quota_left(0) != 40 * MIB)
		return false;
	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGXFSZ);
	quota_give(0, MIB);
	return !sigpending(&set) && sigismember(&set, SIGXFSZ) == 1;
}

/* As under "ulimit -f 0", which would end the program by SIGXFSZ. A signal that pends already is the program's. */
START_TEST(a_limit_of_the_file_size_ends_no_program)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(!counts_without_a_file_size());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(without_a_file_each_process_counts_for_itself)
{
	size_t used, quota;

	setenv("CUDAW_RUNTIME_DIR", "/dev/null", 1);
	setenv("CUDAW_LOG_FILE", "/dev/null", 1);
	errno = 0;
	ck_assert(quota_take(0, 60 * MIB));
	ck_assert(!quota_take(0, 60 * MIB));
	ck_assert_uint_eq(quota_left(0), 40 * MIB);
	ck_assert(!quota_used_of(GPU, &used, &quota));
	ck_assert_int_eq(errno, 0);
}
END_TEST

/* What was written to the file @path. */
static const char *text_of(const char *path)
{
	static char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = read(fd, text, sizeof(text) - 1);

	ck_assert_int_ge(len, 0);
	text[len] = '\0';
	close(fd);
	return text;
}

START_TEST(a_file_that_cannot_be_written_is_an_error_once)
{
	char log[96];
	const char *text;

	snprintf(log, sizeof(log), "%s/log", directory);
	setenv("CUDAW_LOG_FILE", log, 1);
	unlink(file);
	ck_assert_int_eq(mkdir(file, 0700), 0);
	ck_assert(quota_take(0, 60 * MIB) && quota_take(0, 10 * MIB));
	text = strstr(text_of(log), "cannot be used: Is a directory");
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_null(strstr(text + 1, "cannot be used"));
	unlink(log);
	rmdir(file);
}
END_TEST

/* As a process that is stopped while it has a lock of the file, with @size 0 from @start on. */
static int lock_part(off_t start, off_t size)
{
	const struct flock lock = {.l_type = F_WRLCK, .l_start = start, .l_len = size};
	int fd = open(file, O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	return fd;
}

static int lock_file(void)
{
	return lock_part(1L << 40, 1);
}

static void takes_60_and_gives_20(void)
{
	takes_60();
	quota_give(0, 20 * MIB);
}

/* Others see at once what was freed, without another call of the process. */
START_TEST(a_free_needs_no_lock)
{
	int lead, fd;
	pid_t pid;

	ck_assert(quota_take(0, MIB));
	quota_give(0, MIB);
	fd = lock_file();
	pid = child(takes_60_and_gives_20, &lead);
	ck_assert_uint_eq(quota_left(0), 60 * MIB);
	close(fd);
	close(lead);
	waitpid(pid, NULL, 0);
}
END_TEST

/* Who has the lock may be stopped. */
START_TEST(a_lock_that_is_held_stops_nobody)
{
	int lead, fd;
	pid_t pid = child(takes_60, &lead);

	ck_assert(quota_take(0, 10 * MIB));
	fd = lock_file();
	ck_assert(!quota_take(0, 31 * MIB));
	ck_assert(quota_take(0, 30 * MIB));
	close(fd);
	ck_assert_uint_eq(quota_left(0), 0);
	close(lead);
	waitpid(pid, NULL, 0);
	ck_assert_uint_eq(quota_left(0), 60 * MIB);
}
END_TEST

static void end_one_with_60(void)
{
	int lead;
	pid_t pid = child(takes_60, &lead);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(lead);
}

/* As between two system calls of a process that takes the row of a dead one, or that is about to remove the file. */
START_TEST(a_dead_process_s_row_counts_for_nobody)
{
	const off_t sizes[] = {1, 0};
	char log[96];
	int fd;

	snprintf(log, sizeof(log), "%s/log", directory);
	setenv("CUDAW_LOG_FILE", log, 1);
	end_one_with_60();
	for (size_t i = 0; i < 2; i++) {
		fd = lock_part(0, sizes[i]);
		ck_assert_uint_eq(used_of(GPU), 0);
		ck_assert(quota_take(0, 100 * MIB));
		quota_imaged(true); /* which gives the row up */
		quota_give(0, 100 * MIB);
		quota_imaged(false);
		ck_assert_int_eq(is_there(log), !sizes[i]);
		close(fd);
	}
	ck_assert_ptr_nonnull(strstr(text_of(log), "cannot be used: Device or resource busy"));
	unlink(log);
}
END_TEST

START_TEST(a_file_of_nonsense_is_survived)
{
	char text[1000];
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	memset(text, 'x', sizeof(text));
	ck_assert_int_eq(write(fd, text, sizeof(text)), sizeof(text));
	close(fd);
	ck_assert(quota_take(0, 60 * MIB));
	ck_assert(!quota_take(0, 41 * MIB));
	ck_assert_uint_eq(quota_left(0), 40 * MIB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quota");
	TCase *variables = tcase_create("variables"), *account = tcase_create("account");

	tcase_add_checked_fixture(variables, begin, end);
	tcase_add_test(variables, no_variable_no_quota);
	tcase_add_loop_test(variables, the_least_quota_counts, 0,
			    (int)(sizeof(values) / sizeof(values[0])));
	tcase_add_test(variables, a_lack_of_descriptors_passes);
	suite_add_tcase(suite, variables);
	tcase_add_checked_fixture(account, begin_with_quota, end);
	tcase_add_test(account, a_process_has_no_more_than_its_quota);
	tcase_add_test(account, processes_of_a_job_share_it);
	tcase_add_test(account, a_killed_process_leaves_its_part);
	tcase_add_test(account, other_jobs_and_gpus_are_apart);
	tcase_add_test(account, a_crowd_gets_all_of_it_and_no_more);
	tcase_add_test(account, a_fork_has_nothing);
	tcase_add_test(account, a_restored_process_has_its_place_again);
	tcase_add_test(account, a_program_may_close_its_descriptors);
	tcase_add_test(account, a_program_that_no_longer_finds_the_file_stays_in_it);
	tcase_add_test(account, a_reader_finds_the_account_where_it_was_loaded);
	tcase_add_test(account, a_reader_that_finds_no_directory_sees_nothing);
	tcase_add_test(account, the_last_process_removes_the_file);
	tcase_add_test(account, the_file_of_a_killed_job_goes);
	tcase_add_test(account, a_file_that_was_removed_is_made_again);
	tcase_add_test(account, all_gpus_count_again);
	tcase_add_test(account, a_file_of_another_name_is_no_longer_the_account);
	tcase_add_test(account, a_namesake_of_the_file_stays);
	tcase_add_test(account, a_fork_does_not_keep_the_part_of_its_parent);
	tcase_add_test(account, exec_gives_the_part_back);
	tcase_add_test(account, a_free_needs_no_lock);
	tcase_add_test(account, memory_that_moves_to_other_gpus_counts_there_alone);
	tcase_add_test(account, a_limit_of_the_file_size_ends_no_program);
	tcase_add_test(account, without_a_file_each_process_counts_for_itself);
	tcase_add_test(account, a_file_that_cannot_be_written_is_an_error_once);
	tcase_add_test(account, a_lock_that_is_held_stops_nobody);
	tcase_add_test(account, a_dead_process_s_row_counts_for_nobody);
	tcase_add_test(account, a_file_of_nonsense_is_survived);
	suite_add_tcase(suite, account);
	return check_suite_run(suite);
}
