/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/release/freemem.h"
#include "common/gpu.h"

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
#include <sys/wait.h>
#include <unistd.h>

#define LOG_PREFIX "freemem: "
#include "common/log.h"

#define STACK_SIZE 65536

struct child {
	char *argv[GPU_MAX + 2];
	char *envp[2];
	int out;
	char *stack; /* two of STACK_SIZE */
};

/* The program's path, beside the library that this code is in; empty: not known. */
static char program[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In the child, which shares our memory. Its parent waits until it calls execve(). */
static int child_main(void *arg)
{
	struct child *child = arg;

	if (dup2(child->out, STDOUT_FILENO) >= 0)
		execve(program, child->argv, child->envp);
	_exit(127);
}

/* In the parent of the child, which shares our memory too. The caller waits until it ends. */
static int parent_main(void *arg)
{
	struct child *child = arg;
	pid_t pid = clone(child_main, child->stack + 2 * STACK_SIZE,
			  CLONE_VM | CLONE_VFORK | SIGCHLD, child);

	if (pid > 0)
		waitpid(pid, NULL, 0);
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
		snprintf(program, sizeof(program), "%.*s/" FREEMEM_PROGRAM,
			 (int)(slash - info.dli_fname), info.dli_fname);
}

void freemem_find(void)
{
	pthread_once(&once, find_program);
}

/* Run @child and read its answer, a number a line. */
static int ask(struct child *child, int count, size_t *bytes)
{
	char line[64];
	int fds[2], found = 0, error = 0;
	pid_t pid;
	FILE *f;

	child->stack = malloc(2 * STACK_SIZE);
	if (!child->stack || pipe2(fds, O_CLOEXEC)) {
		error = -errno;
		free(child->stack);
		return error;
	}
	child->out = fds[1];
	pid = clone(parent_main, child->stack + STACK_SIZE, CLONE_VM | CLONE_VFORK, child);
	if (pid < 0)
		error = -errno;
	close(fds[1]);
	f = fdopen(fds[0], "r");
	if (!f)
		error = -errno;
	while (f && found < count && fgets(line, sizeof(line), f) &&
	       sscanf(line, "%zu", &bytes[found]) == 1)
		found++;
	if (f)
		fclose(f);
	else
		close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, __WCLONE);
	free(child->stack);
	if (error)
		return error;
	return found == count ? 0 : -ENOSYS;
}

int freemem_query(const struct gpu *gpus, int count, size_t *bytes)
{
	char library_path[PATH_MAX];
	const char *path = getenv("LD_LIBRARY_PATH");
	struct child child = {.argv = {FREEMEM_PROGRAM}};
	int error;

	freemem_find();
	if (count > GPU_MAX || access(program, X_OK)) {
		pr_warn("%s is missing; free GPU memory is not checked", FREEMEM_PROGRAM);
		return -ENOSYS;
	}
	for (int i = 0; i < count; i++)
		child.argv[i + 1] = (char *)gpus[i].uuid;
	if (path) {
		snprintf(library_path, sizeof(library_path), "LD_LIBRARY_PATH=%s", path);
		child.envp[0] = library_path;
	}
	error = ask(&child, count, bytes);
	if (error != -EPERM && error != -EACCES)
		return error;
	/* A sandbox of the program (seccomp) denies it, and will always: do not wait for it. */
	pr_warn("%s cannot be run (%s); free GPU memory is not checked", FREEMEM_PROGRAM,
		strerrordesc_np(-error));
	return -ENOSYS;
}
