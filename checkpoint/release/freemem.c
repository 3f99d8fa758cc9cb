/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release/freemem.h"
#include "common/environment.h"
#include "common/gpu/gpu.h"
#include "common/protocol/rundir.h"
#include "common/system/ownfd.h"
#include "common/system/shortage.h"
#include "common/text.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_PREFIX "freemem: "
#include "common/log.h"

#define STACK_SIZE 65536
#define LINE_SIZE  24 /* of a number */

#define EXIT_NOT_RUN 127 /* also of a program for which there is no loader or library */
#define PROGRAM      (STDERR_FILENO + 1) /* in the child */

#ifdef __SANITIZE_THREAD__
/*
 * TSan takes clone() for a fork, and stops to see what synchronises the thread. glibc has the function
 * under this name too, which TSan does not know; for the child it is the thread that waits for it.
 * In _exit() TSan would report what the process has left to do, with locks that other threads hold.
 */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#define clone __clone
#define _exit(status)                            \
	do {                                     \
		syscall(SYS_exit_group, status); \
		__builtin_unreachable();         \
	} while (0)
#endif

struct child {
	char *argv[GPU_MAX + 2];
	char *envp[2];
	int out, program;
	char *stack; /* two of STACK_SIZE */
	int error;   /* a negative errno, by the child or its parent: why the program was not run */
};

/* The program's path, beside the library that this code is in; empty: not known. */
static char path[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* The program. The path may lead nowhere later, if ours becomes another user's process or has another root. */
static struct ownfd program = OWNFD_NONE;

/* In the child, which shares our memory. Its parent waits until it calls execve(). */
static int child_main(void *arg)
{
	struct child *child = arg;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execveat(PROGRAM, "", child->argv, child->envp, AT_EMPTY_PATH);
	execve(path, child->argv, child->envp);
	child->error = -errno;
	_exit(EXIT_NOT_RUN);
}

/*
 * Keep nothing but @out, as the standard output, and @from, as PROGRAM. Copies of the job's descriptors would keep
 * its pipes, locks and ports from ending while NVML answers, and use up the limit, which the child inherits.
 */
static int leave_descriptors(int out, int from)
{
	int null;

	/* dup2() leaves FD_CLOEXEC if it is the same descriptor already. */
	if (dup2(out, STDOUT_FILENO) < 0 || fcntl(STDOUT_FILENO, F_SETFD, 0))
		return -errno;
	close(STDIN_FILENO);
	close(STDERR_FILENO);
	if (from < 0)
		close(PROGRAM);
	else if (from != PROGRAM)
		dup3(from, PROGRAM, O_CLOEXEC);
	close_range(PROGRAM + 1, ~0U, 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, STDIN_FILENO);
	dup2(null, STDERR_FILENO);
	return 0;
}

/* In the parent of the child, which shares our memory too. The caller waits until it ends. */
static int parent_main(void *arg)
{
	struct child *child = arg;
	int status;
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	child->error = leave_descriptors(child->out, child->program);
	if (child->error)
		_exit(EXIT_NOT_RUN);
	/*
	 * If the program ignores SIGCHLD, the kernel leaves no child to wait for. The actions are a copy: the
	 * program keeps its own.
	 */
	signal(SIGCHLD, SIG_DFL);
	pid = clone(child_main, child->stack + 2 * STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD,
		    child);
	if (pid < 0)
		child->error = -errno;
	else if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		child->error = -EAGAIN;
	else if (!child->error && WEXITSTATUS(status) == EXIT_NOT_RUN)
		child->error = -ELIBACC;
	_exit(0);
}

static void find_program(void)
{
	Dl_info info;
	const char *slash;

	if (!dladdr((void *)freemem_query, &info) || !info.dli_fname)
		return;
	slash = strrchr(info.dli_fname, '/');
	if (slash)
		snprintf(path, sizeof(path), "%.*s/" FREEMEM_PROGRAM, (int)(slash - info.dli_fname),
			 info.dli_fname);
}

void freemem_find(void)
{
	pthread_once(&once, find_program);
	if (ownfd_get(&program) < 0)
		ownfd_set(&program, open(path, O_PATH | O_CLOEXEC));
}

/*
 * There was an answer before, from the same root directory: what keeps us from another one will pass, as an
 * upgrade of NVML does.
 */
static bool answered;
static struct rundir_home answered_at;

static int no_way(void)
{
	return answered && rundir_sees_home(&answered_at) ? -EAGAIN : -ENOSYS;
}

/* Run @child and read its answer, at most @size - 1 bytes. */
static int run_child(struct child *child, char *answer, size_t size)
{
	int fds[2], error;
	size_t length = 0;
	ssize_t got;
	pid_t pid;

	child->stack = malloc(2 * STACK_SIZE);
	if (!child->stack || pipe2(fds, O_CLOEXEC)) {
		error = -errno;
		free(child->stack);
		return error;
	}
	child->out = fds[1];
	child->program = ownfd_get(&program);
	pid = clone(parent_main, child->stack + STACK_SIZE, CLONE_VM | CLONE_VFORK, child);
	error = pid < 0 ? -errno : child->error;
	close(fds[1]);
	while ((got = read(fds[0], answer + length, size - 1 - length)) > 0 ||
	       (got < 0 && errno == EINTR))
		length += got > 0 ? got : 0;
	answer[length] = '\0';
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, __WCLONE);
	free(child->stack);
	return error;
}

/* Run the program with the arguments of @child. 0 or a negative errno, as freemem_query(). */
static int ask(struct child *child, char *answer, size_t size)
{
	char library_path[PATH_MAX];
	const char *libraries = environment_get("LD_LIBRARY_PATH");
	int error;

	pthread_once(&once, find_program);
	child->argv[0] = FREEMEM_PROGRAM;
	if (libraries) {
		snprintf(library_path, sizeof(library_path), "LD_LIBRARY_PATH=%s", libraries);
		child->envp[0] = library_path;
	}
	error = run_child(child, answer, size);
	if (!error || is_shortage(error) || error == -EAGAIN || error == -ETXTBSY)
		return error;
	/* A sandbox of the program (seccomp), or its root directory, denies it, and will always: do not wait for it. */
	pr_warn("%s cannot be run (%s); free GPU memory is not checked", FREEMEM_PROGRAM,
		error_text(-error));
	return -ENOSYS;
}

int freemem_query(const struct gpu *gpus, int count, size_t *bytes)
{
	char answer[GPU_MAX * LINE_SIZE], *line = answer, *end;
	struct child child = {0};
	int error;

	if (count > GPU_MAX)
		return -ENOSYS;
	for (int i = 0; i < count; i++)
		child.argv[i + 1] = (char *)gpus[i].uuid;
	error = ask(&child, answer, sizeof(answer));
	if (error)
		return error;
	for (int i = 0; i < count; i++, line = end) {
		bytes[i] = strtoull(line, &end, 10);
		if (end == line)
			return no_way();
	}
	answered = true;
	rundir_see_home(&answered_at);
	return 0;
}

void freemem_holders(const struct gpu *gpu, char *text, size_t size)
{
	char pid[LINE_SIZE];
	struct child child = {.argv = {NULL, "--holders", (char *)gpu->uuid, pid}};

	snprintf(pid, sizeof(pid), "%d", getpid());
	if (ask(&child, text, size))
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}
