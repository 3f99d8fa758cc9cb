/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime directory: what is accepted as one, and the sockets in it. */
#include "common/protocol/rundir.h"

#include "tests/check_suite.h"
#include "tests/unit/time_namespace.h"
#include "tests/unit/without_main.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WHOSE "it belongs to another user (12345):"

static char base[64];
static const char *why;

static void setup(void)
{
	strcpy(base, "/tmp/test-rundir-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

static char *in_base(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

START_TEST(path_default_and_override)
{
	char path[PATH_MAX];

	unsetenv("CUDAW_RUNTIME_DIR");
	ck_assert_int_eq(rundir_path(1234, path, sizeof(path), &why), 0);
	ck_assert_str_eq(path, "/tmp/cudaw-1234");
	setenv("CUDAW_RUNTIME_DIR", "/run/gpu//", 1);
	ck_assert_int_eq(rundir_path(1234, path, sizeof(path), &why), 0);
	ck_assert_str_eq(path, "/run/gpu");
	setenv("CUDAW_RUNTIME_DIR", "here", 1);
	ck_assert_int_eq(rundir_path(1234, path, sizeof(path), &why), -EINVAL);
	setenv("CUDAW_RUNTIME_DIR", "/run/gpu", 1);
	ck_assert_int_eq(rundir_path(1234, path, 8, &why), -ENAMETOOLONG);
}
END_TEST

START_TEST(create_makes_private_directory)
{
	struct stat st;
	int fd;

	umask(0);
	fd = rundir_create(in_base("dir"), geteuid(), &why);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	/* A second time it is there already. */
	ck_assert_int_ge(rundir_create(in_base("dir"), geteuid(), &why), 0);
	ck_assert_int_eq(rundir_create(in_base("no/dir"), geteuid(), &why), -ENOENT);
}
END_TEST

/* To root every directory is open. */
static void be_nobody(void)
{
	if (geteuid())
		return;
	ck_assert_int_eq(chown(base, 54321, 54321), 0);
	ck_assert_int_eq(seteuid(54321), 0);
}

START_TEST(create_makes_a_directory_that_can_be_used)
{
	const mode_t masks[] = {0177, 0477, 0777};
	const char *const names[] = {"177", "477", "777"};
	struct stat st;

	be_nobody();
	for (int i = 0; i < 3; i++) {
		int fd;

		umask(masks[i]);
		fd = rundir_create(in_base(names[i]), geteuid(), &why);
		ck_assert_msg(fd >= 0, "with umask %s: %s", names[i], why);
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0700);
	}
	umask(022);
	seteuid(getuid());
}
END_TEST

START_TEST(refuses_what_is_no_directory)
{
	char target[PATH_MAX];

	ck_assert_int_eq(rundir_open(in_base("absent"), geteuid(), &why), -ENOENT);
	strcpy(target, in_base("real"));
	ck_assert_int_eq(mkdir(target, 0700), 0);
	ck_assert_int_eq(symlink(target, in_base("link")), 0);
	ck_assert_int_lt(rundir_create(in_base("link"), geteuid(), &why), 0);
	ck_assert_str_eq(why, "it is a symbolic link");
	ck_assert_int_ge(creat(in_base("file"), 0700), 0);
	ck_assert_int_eq(rundir_create(in_base("file"), geteuid(), &why), -ENOTDIR);
}
END_TEST

START_TEST(refuses_directory_of_others)
{
	/*
	 * Only root can give a directory away; to anybody else, / is a directory of another user.
	 */
	const char *path = "/";

	if (geteuid() == 0) {
		path = in_base("foreign");
		ck_assert_int_eq(mkdir(path, 0700), 0);
		ck_assert_int_eq(chown(path, 12345, 12345), 0);
		ck_assert_int_ge(rundir_open(path, RUNDIR_ANYONE, &why), 0);
	}
	ck_assert_int_eq(rundir_open(path, geteuid(), &why), -EPERM);
	ck_assert_ptr_nonnull(strstr(why, geteuid() ? "another user (0):" : WHOSE));
	ck_assert_ptr_nonnull(strstr(why, "CUDAW_RUNTIME_DIR"));
}
END_TEST

/* /tmp/cudaw-UID may be anything of anybody's. */
START_TEST(names_who_took_the_place)
{
	static const char *const names[] = {"directory", "file", "link"};

	if (geteuid()) {
		printf("# nothing can be given to another user here (it takes root)\n");
		return;
	}
	ck_assert_int_eq(chmod(base, 0755), 0);
	ck_assert_int_eq(mkdir(in_base("directory"), 0700), 0);
	ck_assert_int_ge(creat(in_base("file"), 0700), 0);
	ck_assert_int_eq(symlink("/", in_base("link")), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(lchown(in_base(names[i]), 12345, 12345), 0);
	ck_assert_int_eq(seteuid(54321), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_lt(rundir_create(in_base(names[i]), 54321, &why), 0);
		ck_assert_msg(strstr(why, WHOSE) && strstr(why, "CUDAW_RUNTIME_DIR"), "%s: %s",
			      names[i], why);
	}
	ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

START_TEST(refuses_open_modes)
{
	static const mode_t modes[] = {0770, 0720, 0701, 0755, 0777};

	ck_assert_int_eq(mkdir(in_base("open"), 0700), 0);
	ck_assert_int_ge(rundir_open(in_base("open"), geteuid(), &why), 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		ck_assert_int_eq(chmod(in_base("open"), modes[i]), 0);
		ck_assert_int_eq(rundir_open(in_base("open"), geteuid(), &why), -EACCES);
	}
}
END_TEST

static struct rundir_home home;

static int listen_now(enum rundir_socket kind)
{
	ck_assert_int_eq(rundir_find_home(&home, &why), 0);
	return rundir_listen(kind, &home, false);
}

START_TEST(listen_and_connect)
{
	char name[64];
	struct stat st;
	int dir, server, client;

	/* umask must neither open nor lock the socket. */
	umask(0277);
	dir = open(base, O_RDONLY | O_DIRECTORY);
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	ck_assert_int_eq(rundir_connect(RUNDIR_CONTROL, dir, getpid()), -ENOENT);
	server = listen_now(RUNDIR_CONTROL);
	ck_assert_int_ge(server, 0);
	ck_assert_int_eq(fcntl(server, F_GETFD), FD_CLOEXEC);
	snprintf(name, sizeof(name), "%d.sock", getpid());
	ck_assert_int_eq(stat(in_base(name), &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, 0600);

	client = rundir_connect(RUNDIR_CONTROL, dir, getpid());
	ck_assert_int_ge(client, 0);
	ck_assert_int_ne(fcntl(client, F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_ge(accept(server, NULL, NULL), 0);

	/* A live socket of the same name belongs to another PID namespace: it is left alone. */
	ck_assert_int_eq(listen_now(RUNDIR_CONTROL), -EADDRINUSE);
	ck_assert_int_ge(rundir_connect(RUNDIR_CONTROL, dir, getpid()), 0);
	rundir_unlink(RUNDIR_CONTROL, &home);
	ck_assert_int_eq(rundir_connect(RUNDIR_CONTROL, dir, getpid()), -ENOENT);
}
END_TEST

static int connect_to_parent(void)
{
	int dir = rundir_open_own(&why);

	return rundir_connect(RUNDIR_CONTROL, dir, getppid()) < 0;
}

START_TEST(a_process_without_its_main_thread_connects)
{
	setenv("CUDAW_RUNTIME_DIR", base, 1);
	ck_assert_int_ge(listen_now(RUNDIR_CONTROL), 0);
	ck_assert_int_eq(run_without_main(connect_to_parent), 0);
}
END_TEST

START_TEST(both_kinds_of_sockets_stand_side_by_side)
{
	int dir = open(base, O_RDONLY | O_DIRECTORY), type;
	socklen_t size = sizeof(type);
	int control, peer, client;

	setenv("CUDAW_RUNTIME_DIR", base, 1);
	control = listen_now(RUNDIR_CONTROL);
	peer = listen_now(RUNDIR_SHARING);
	ck_assert_int_ge(control, 0);
	ck_assert_int_ge(peer, 0);
	client = rundir_connect(RUNDIR_SHARING, dir, getpid());
	ck_assert_int_ge(client, 0);
	ck_assert_int_eq(getsockopt(client, SOL_SOCKET, SO_TYPE, &type, &size), 0);
	ck_assert_int_eq(type, SOCK_SEQPACKET);
	ck_assert_int_ge(accept(peer, NULL, NULL), 0);
	rundir_unlink(RUNDIR_SHARING, &home);
	ck_assert_int_eq(rundir_connect(RUNDIR_SHARING, dir, getpid()), -ENOENT);
	ck_assert_int_ge(rundir_connect(RUNDIR_CONTROL, dir, getpid()), 0);
}
END_TEST

/* Where others look for it, whatever the program does to its environment. */
START_TEST(a_lost_name_is_made_again_where_it_was)
{
	int dir, first, second;

	setenv("CUDAW_RUNTIME_DIR", in_base("own"), 1);
	first = listen_now(RUNDIR_SHARING);
	ck_assert_int_ge(first, 0);
	ck_assert(!rundir_is_unnamed(RUNDIR_SHARING, &home));
	ck_assert(rundir_is_unnamed(RUNDIR_CONTROL, &home));
	unsetenv("CUDAW_RUNTIME_DIR");
	rundir_unlink(RUNDIR_SHARING, &home);
	ck_assert(rundir_is_unnamed(RUNDIR_SHARING, &home));
	ck_assert_int_eq(rmdir(home.path), 0);
	ck_assert(rundir_is_unnamed(RUNDIR_SHARING, &home));
	second = rundir_listen(RUNDIR_SHARING, &home, false);
	ck_assert_int_ge(second, 0);
	ck_assert(!rundir_is_unnamed(RUNDIR_SHARING, &home));
	dir = open(in_base("own"), O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(rundir_connect(RUNDIR_SHARING, dir, getpid()), 0);
	ck_assert_int_ge(accept(second, NULL, NULL), 0);
}
END_TEST

/* A process that sees other files does not make another socket: others still find the one that it has. */
START_TEST(a_name_that_only_others_see_is_not_lost)
{
	int fd, status;

	setenv("CUDAW_RUNTIME_DIR", in_base("own"), 1);
	fd = listen_now(RUNDIR_CONTROL);
	ck_assert_int_ge(fd, 0);
	for (int how = 0; how < 2; how++) {
		pid_t child = fork();

		if (!child) {
			if (how ? chroot(base) : unshare(CLONE_NEWUSER | CLONE_NEWNS))
				_exit(2);
			if (how == 0 && mount("none", base, "tmpfs", 0, NULL))
				_exit(2);
			_exit(rundir_is_unnamed(RUNDIR_CONTROL, &home));
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status));
		ck_assert_int_ne(WEXITSTATUS(status), 1);
	}
	/* What is restored elsewhere has its name there. */
	ck_assert(!rundir_is_unnamed(RUNDIR_CONTROL, &home));
	home.mounts++;
	rundir_unlink(RUNDIR_CONTROL, &home);
	ck_assert(!rundir_is_unnamed(RUNDIR_CONTROL, &home));
	rundir_see_home(&home);
	ck_assert(rundir_is_unnamed(RUNDIR_CONTROL, &home));
}
END_TEST

/* It would make a directory of that user's in the place of its own. */
START_TEST(another_user_makes_no_directory)
{
	struct stat st;

	setenv("CUDAW_RUNTIME_DIR", in_base("own"), 1);
	ck_assert_int_eq(rundir_find_home(&home, &why), 0);
	home.user++;
	ck_assert_int_eq(rundir_listen(RUNDIR_SHARING, &home, false), -EPERM);
	ck_assert_int_ne(stat(home.path, &st), 0);
}
END_TEST

START_TEST(replaces_a_dead_socket)
{
	int dir = open(base, O_RDONLY | O_DIRECTORY);
	int first;

	setenv("CUDAW_RUNTIME_DIR", base, 1);
	first = listen_now(RUNDIR_CONTROL);
	ck_assert_int_ge(first, 0);
	close(first);
	ck_assert_int_eq(rundir_connect(RUNDIR_CONTROL, dir, getpid()), -ECONNREFUSED);
	ck_assert_int_ge(listen_now(RUNDIR_CONTROL), 0);
	ck_assert_int_ge(rundir_connect(RUNDIR_CONTROL, dir, getpid()), 0);
}
END_TEST

START_TEST(locks_exclude_and_end)
{
	int dir = open(base, O_RDONLY | O_DIRECTORY);
	int lock, fds[2];
	struct stat st;
	char byte;

	/* umask must not lock others out. */
	umask(0277);
	lock = rundir_lock(dir, "a.lock");
	ck_assert_int_ge(lock, 0);
	ck_assert_int_eq(fcntl(lock, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(stat(in_base("a.lock"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(rundir_lock(dir, "a.lock"), -EAGAIN);
	ck_assert_int_ge(rundir_lock(dir, "b.lock"), 0);

	/* A child that was forked meanwhile has the descriptor, not the lock. */
	ck_assert_int_eq(pipe(fds), 0);
	if (fork() == 0) {
		close(fds[1]);
		_exit(read(fds[0], &byte, 1) != 0);
	}
	rundir_unlock(lock);
	ck_assert_int_ge(rundir_lock(dir, "a.lock"), 0);
	close(fds[1]);
	wait(NULL);

	ck_assert_int_eq(symlink("a.lock", in_base("c.lock")), 0);
	ck_assert_int_eq(rundir_lock(dir, "c.lock"), -ELOOP);
}
END_TEST

START_TEST(long_paths_work)
{
	char path[PATH_MAX];
	const char *reason;
	int dir;

	/* Longer than sockaddr_un holds. */
	snprintf(path, sizeof(path), "%s/%0150d", base, 0);
	setenv("CUDAW_RUNTIME_DIR", path, 1);
	ck_assert_int_ge(listen_now(RUNDIR_CONTROL), 0);
	dir = rundir_open(path, geteuid(), &reason);
	ck_assert_int_ge(dir, 0);
	ck_assert_int_ge(rundir_connect(RUNDIR_CONTROL, dir, getpid()), 0);
}
END_TEST

START_TEST(listen_fails_clearly)
{
	char log[PATH_MAX], line[512] = "";
	FILE *file;

	strcpy(log, in_base("log"));
	setenv("CUDAW_LOG_FILE", log, 1);
	setenv("CUDAW_RUNTIME_DIR", in_base("no/dir"), 1);
	ck_assert_int_eq(listen_now(RUNDIR_CONTROL), -ENOENT);
	file = fopen(log, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_ptr_nonnull(strstr(line, "no/dir cannot be used: No such file or directory"));
	ck_assert_ptr_null(fgets(line, sizeof(line), file));
}
END_TEST

static void check_id(const char *id)
{
	ck_assert_uint_eq(strlen(id), RUNDIR_ID_SIZE - 1);
	ck_assert_uint_eq(strspn(id, "0123456789abcdef"), RUNDIR_ID_SIZE - 1);
	ck_assert_int_ge(id[0], 'a');
}

START_TEST(ids_never_look_like_pids)
{
	char id[RUNDIR_ID_SIZE];

	for (uint64_t seed = 0; seed < 10000; seed++) {
		rundir_make_id(seed, id);
		check_id(id);
	}
}
END_TEST

START_TEST(job_id_from_environment_or_process)
{
	static const char *const bad[] = {"", "12345", "1234567", "12345g", "../../"};
	char first[RUNDIR_ID_SIZE], id[RUNDIR_ID_SIZE], child[RUNDIR_ID_SIZE];
	int fds[2];

	setenv("CUDAW_JOB", "00beef", 1);
	rundir_job_id(id);
	ck_assert_str_eq(id, "00beef");

	unsetenv("CUDAW_JOB");
	rundir_job_id(first);
	check_id(first);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("CUDAW_JOB", bad[i], 1);
		rundir_job_id(id);
		ck_assert_str_eq(id, first);
	}
	ck_assert_int_eq(pipe(fds), 0);
	if (fork() == 0) {
		rundir_job_id(child);
		_exit(write(fds[1], child, sizeof(child)) < 0);
	}
	ck_assert_int_eq(read(fds[0], child, sizeof(child)), sizeof(child));
	wait(NULL);
	check_id(child);
	ck_assert_str_ne(child, first);
}
END_TEST

static void *wait_for_the_end(void *arg)
{
	pause();
	return arg;
}

static char state_of(pid_t pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
	fclose(file);
	return state;
}

/* Its main thread may have, and others work on. */
START_TEST(what_has_ended_has_no_start_time)
{
	pthread_t thread;
	pid_t child = fork();

	if (!child) {
		pthread_create(&thread, NULL, wait_for_the_end, NULL);
		pthread_exit(NULL);
	}
	while (state_of(child) != 'Z')
		usleep(1000);
	ck_assert_uint_gt(rundir_start_time(child), 0);
	kill(child, SIGKILL);
	while (rundir_start_time(child))
		usleep(1000);
	ck_assert_int_eq(state_of(child), 'Z');
	waitpid(child, NULL, 0);
	ck_assert_uint_eq(rundir_start_time(child), 0);
}
END_TEST

static pid_t seen;
static uint64_t seen_start, seen_common; /* of that process */

/* 0, or which of the questions has the wrong answer. */
static int see_the_start(void)
{
	uint64_t common = rundir_common_start(seen);

	if (rundir_start_time(seen) < seen_start + 1000 * 100)
		return 1;
	return rundir_is_common_start(common, seen_common) ? 0 : 2;
}

static int see_it_without_main(void)
{
	return run_without_main(see_the_start);
}

START_TEST(all_time_namespaces_have_one_start_time)
{
	int (*const ways[])(void) = {see_the_start, see_it_without_main};
	int status;

	seen = getpid();
	seen_start = rundir_start_time(seen);
	seen_common = rundir_common_start(seen);
	for (int i = 0; i < 2; i++) {
		status = run_in_time_namespace(ways[i]);
		ck_assert(!status || status == TIME_NAMESPACE_NONE);
	}
	ck_assert(rundir_is_common_start(5, 6));
	ck_assert(rundir_is_common_start(6, 5));
	ck_assert(!rundir_is_common_start(5, 7));
	ck_assert(!rundir_is_common_start(7, 5));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rundir");
	TCase *tcase = tcase_create("rundir");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, path_default_and_override);
	tcase_add_test(tcase, create_makes_private_directory);
	tcase_add_test(tcase, create_makes_a_directory_that_can_be_used);
	tcase_add_test(tcase, refuses_what_is_no_directory);
	tcase_add_test(tcase, refuses_directory_of_others);
	tcase_add_test(tcase, names_who_took_the_place);
	tcase_add_test(tcase, refuses_open_modes);
	tcase_add_test(tcase, listen_and_connect);
	tcase_add_test(tcase, a_process_without_its_main_thread_connects);
	tcase_add_test(tcase, both_kinds_of_sockets_stand_side_by_side);
	tcase_add_test(tcase, a_lost_name_is_made_again_where_it_was);
	tcase_add_test(tcase, a_name_that_only_others_see_is_not_lost);
	tcase_add_test(tcase, another_user_makes_no_directory);
	tcase_add_test(tcase, replaces_a_dead_socket);
	tcase_add_test(tcase, locks_exclude_and_end);
	tcase_add_test(tcase, long_paths_work);
	tcase_add_test(tcase, listen_fails_clearly);
	tcase_add_test(tcase, ids_never_look_like_pids);
	tcase_add_test(tcase, job_id_from_environment_or_process);
	tcase_add_test(tcase, what_has_ended_has_no_start_time);
	tcase_add_test(tcase, all_time_namespaces_have_one_start_time);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
