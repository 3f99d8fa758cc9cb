/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/run/run_checks.h"

#include "common/find/find.h"
#include "common/gpu/nvml.h"
#include "common/settings.h"
#include "common/text.h"
#include "tools/command/elf_file.h"
#include "tools/job/jobs.h"
#include "tools/process/limited.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool is_program(const char *path)
{
	struct stat st;

	return access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool run_find_program(const char *cmd, char *path, size_t size)
{
	const char *dir = getenv("PATH");

	if (strchr(cmd, '/'))
		return snprintf(path, size, "%s", cmd) < (int)size && is_program(path);
	for (dir = dir ? dir : "/bin:/usr/bin";; dir++) {
		int len = strcspn(dir, ":");

		if (snprintf(path, size, "%.*s%s%s", len, dir, len ? "/" : "", cmd) < (int)size &&
		    is_program(path))
			return true;
		dir += len;
		if (!*dir)
			return false;
	}
}

/* Why the loader ignores LD_PRELOAD for the program in @fd; NULL: it does not. */
static const char *why_not_loadable(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	if (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
	    ((st.st_mode & S_ISGID) && st.st_gid != getegid()))
		return "is set-uid or set-gid";
	if (geteuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		return "has file capabilities";
	return elf_file_is_static(fd) ? "is a static program" : NULL;
}

/* The same of @cmd, with its @path; also NULL if it cannot be found or read, which execvp(3) reports. */
static const char *why_without_cudaw(const char *cmd, char path[PATH_MAX])
{
	const char *why;
	int fd;

	if (!run_find_program(cmd, path, PATH_MAX))
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	why = fd < 0 ? NULL : why_not_loadable(fd);
	if (fd >= 0)
		close(fd);
	return why;
}

void run_warn_of_program(const char *cmd)
{
	char path[PATH_MAX];
	const char *why = why_without_cudaw(cmd, path);

	if (why)
		complain("warning: %s %s, so it runs without cudaw and cannot be paused", path,
			 why);
}

bool run_can_be_paused(const char *cmd)
{
	char path[PATH_MAX], why_no_driver[512];
	const char *why = why_without_cudaw(cmd, path);
	bool there;

	if (why) {
		complain("%s %s, so it would run without cudaw; not started (--require)", path,
			 why);
		return false;
	}
	why = run_check_directory(path, &there);
	if (why) {
		complain("runtime directory %s: %s; not started (--require)", path, why);
		return false;
	}
	if (!find_real_driver(path, sizeof(path)))
		return true;
	find_explain(FIND_DRIVER, why_no_driver, sizeof(why_no_driver));
	complain("driver: %s; not started (--require)", why_no_driver);
	return false;
}

static bool is_named(const struct job *jobs, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(jobs[i].status.name, name))
			return true;
	return false;
}

static bool is_taken(const char *name)
{
	struct job_list list;
	struct job **jobs;

	if (jobs_find(&list))
		return false;
	jobs = calloc(list.n + 1, sizeof(*jobs));
	for (size_t i = 0; jobs && i < list.n; i++)
		jobs[i] = &list.jobs[i];
	if (jobs)
		jobs_describe(jobs, list.n);
	return is_named(list.jobs, list.n, name) || is_named(list.starting, list.nstarting, name);
}

struct question {
	void (*work)(void *arg, int fd);
	const void *arg;
};

/* As soon as the other end of @fd is closed, whatever hangs here. */
static void end_with(int fd)
{
	struct pollfd other = {.fd = fd};
	sigset_t none;

	signal(SIGIO, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	fcntl(fd, F_SETOWN, getpid());
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
	if (poll(&other, 1, 0))
		_exit(1);
}

/*
 * SIGIO ends a grandchild that hangs: its number may be another process's by then, and a clock would not know how long
 * the command has been stopped.
 */
static void work_in_grandchild(void *arg, int fd)
{
	const struct question *question = arg;

	if (fork())
		return;
	end_with(fd);
	question->work((void *)question->arg, fd);
}

/*
 * The @size bytes that @work sends from a grandchild: what it opens, allocates and starts is not for the program, and
 * it may hang, also so that nothing can kill it. As a child it would then be one that the program has not started.
 * Returns 0; -ETIMEDOUT; or another negative errno if there is no such answer.
 */
static int ask_grandchild(void (*work)(void *arg, int fd), const void *arg, void *answer,
			  size_t size)
{
	struct question question = {work, arg};
	struct limited child;
	int error = limited_begin(&child, work_in_grandchild, &question);

	if (error)
		return error;
	waitpid(child.pid, NULL, 0);
	error = limited_wait(&child, NULL);
	if (!error && recv(child.fd, answer, size, 0) != (ssize_t)size)
		error = -ENODATA;
	close(child.fd);
	return error;
}

static void send_if_taken(void *name, int fd)
{
	if (is_taken(name))
		send(fd, "", 1, MSG_NOSIGNAL);
}

void run_warn_of_name(const char *name)
{
	char taken;

	if (!ask_grandchild(send_if_taken, name, &taken, 1))
		complain("warning: another job is called '%s': commands will need an ID, which "
			 "'cudaw ps %s' shows",
			 name, name);
}

/* By NVML; 0: it is not known. */
static size_t largest_gpu(void)
{
	size_t most = 0, total, free;
	char uuid[NVML_UUID_SIZE];
	unsigned int count = 0;

	nvml_device_count(&count);
	for (unsigned int i = 0; i < count; i++)
		if (!nvml_device_uuid(i, uuid) && !nvml_memory(uuid, &total, &free) && total > most)
			most = total;
	return most;
}

static void send_largest_gpu(void *arg, int fd)
{
	size_t most = largest_gpu();

	(void)arg;
	send(fd, &most, sizeof(most), MSG_NOSIGNAL);
}

/* NVML may hang, as beside a GPU that has failed. */
void run_warn_of_memory(void)
{
	size_t limit = 0, most = 0;
	char text[FORMAT_SIZE];

	setting_size(SETTING_MEM, &limit);
	if (ask_grandchild(send_largest_gpu, NULL, &most, sizeof(most)) == -ETIMEDOUT)
		complain(
			"warning: --mem: NVML has not answered in %d s, so the GPUs' memory is not known",
			LIMITED_MS / 1000);
	if (most && limit > most)
		complain("warning: --mem: no GPU here has more than %s, so it limits nothing",
			 format_bytes(text, most));
}

/*
 * Before Linux 5.16 a filter makes a process slower, by what is done against side channels (SPEC_ALLOW: not so). 0, or
 * -1 with errno.
 */
static int set_filter(const struct sock_fprog *program)
{
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		       program);
}

/*
 * CRIU does not take io_uring, and libuv 1.52 (as in uvloop) has one in each event loop, whatever UV_USE_IO_URING says.
 * All of its users go on without, as on a kernel that has none. The call has the same number on all machines.
 */
static bool refuse_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (!set_filter(&program))
		return true;
	/* EACCES: it takes CAP_SYS_ADMIN, or no_new_privs, which nobody can take back. */
	return errno == EACCES && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !set_filter(&program);
}

void run_prepare_snapshots(void)
{
	/* For connections between ranks: each machine has that address. */
	static const char *const interfaces[] = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};
	static const char *const streams[] = {"stdin", "stdout", "stderr"};
	struct stat st;

	for (size_t i = 0; i < sizeof(interfaces) / sizeof(interfaces[0]); i++)
		setenv(interfaces[i], "lo", 0);
	for (int fd = 0; fd < 3; fd++)
		if (isatty(fd))
			complain(
				"warning: --snapshot: %s is a terminal, so a restore needs one, too; "
				"expected a file or /dev/null",
				streams[fd]);
		else if (!fstat(fd, &st) && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
			complain(
				"warning: --snapshot: %s is a %s, with which no snapshot can be taken; "
				"expected a file or /dev/null",
				streams[fd], S_ISSOCK(st.st_mode) ? "socket" : "pipe");
	if (!refuse_io_uring())
		complain(
			"warning: --snapshot: the job may use io_uring, with which no snapshot can be "
			"taken: %s",
			strerror(errno));
}

const char *run_check_directory(char path[PATH_MAX], bool *there)
{
	char parent[PATH_MAX];
	const char *why;
	int fd, err = rundir_path(geteuid(), path, PATH_MAX, &why);

	fd = err ? err : rundir_open(path, geteuid(), &why);
	*there = fd >= 0;
	if (fd >= 0) {
		close(fd);
		return NULL;
	}
	strcpy(parent, path);
	if (fd != -ENOENT)
		return why;
	return access(dirname(parent), W_OK | X_OK) ? "it cannot be made" : NULL;
}
