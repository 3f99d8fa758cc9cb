/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/forks.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The linker's names for the bounds of the section. */
extern const struct forks_entry __start_cudaw_forks[] __attribute__((visibility("hidden")));
extern const struct forks_entry __stop_cudaw_forks[] __attribute__((visibility("hidden")));

static pid_t owner;
static unsigned long begun, ended; /* fork()s; atomic */

static void in_child(void)
{
	for (const struct forks_entry *e = __start_cudaw_forks; e < __stop_cudaw_forks; e++) {
		if (e->lock)
			pthread_mutex_init(e->lock, NULL);
		if (e->child)
			e->child();
	}
	begun = ended = 0;
	owner = getpid();
}

static void before_fork(void)
{
	__atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
}

static void after_fork(void)
{
	__atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
}

void forks_watch(void)
{
	/* If there is no memory for the handlers, children find out in forks_adopt(). */
	pthread_atfork(before_fork, after_fork, in_child);
	owner = getpid();
}

bool forks_is_ours(void)
{
	pid_t of = __atomic_load_n(&owner, __ATOMIC_RELAXED);

	return !of || of == getpid();
}

bool forks_adopt(void)
{
	long differ;

	if (forks_is_ours())
		return true;
	/* The owner may have ended, or be invisible in another PID namespace. */
	differ = syscall(SYS_kcmp, getpid(), owner, KCMP_VM, 0, 0);
	if (!differ || (differ < 0 && errno != ESRCH))
		return false;
	in_child();
	return true;
}

unsigned long forks_mark(void)
{
	unsigned long mark = __atomic_load_n(&begun, __ATOMIC_SEQ_CST);

	/* A fork() under way may copy the descriptor, so it counts as a later one. */
	return __atomic_load_n(&ended, __ATOMIC_SEQ_CST) == mark ? mark : mark - 1;
}

bool forks_came_since(unsigned long mark)
{
	return __atomic_load_n(&begun, __ATOMIC_SEQ_CST) != mark;
}
