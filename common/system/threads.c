/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/threads.h"

#include <sched.h>
#include <string.h>

#define STACK_SIZE \
	(512UL << 10) /* at least; static TLS of the program's libraries lies in it, too */

/* Processors at load time, of more than the 1024 that cpu_set_t has room for. */
static cpu_set_t processors[8];
static bool processors_known;

void threads_see_processors(void)
{
	processors_known = !sched_getaffinity(0, sizeof(processors), processors);
}

/* The program may have set a smaller default, for its own threads (pthread_setattr_default_np(3)). */
static void make_room(pthread_attr_t *attr)
{
	size_t size;

	if (!pthread_attr_getstacksize(attr, &size) && size < STACK_SIZE)
		pthread_attr_setstacksize(attr, STACK_SIZE);
}

/* What the calling thread has as the process had it is inherited: a filter of system calls may deny to set it. */
static void leave_caller(pthread_attr_t *attr)
{
	const struct sched_param none = {0};
	int policy = sched_getscheduler(0);
	cpu_set_t now[8];

	if (policy >= 0)
		policy &= ~SCHED_RESET_ON_FORK;
	if (policy == SCHED_FIFO || policy == SCHED_RR) {
		pthread_attr_setinheritsched(attr, PTHREAD_EXPLICIT_SCHED);
		pthread_attr_setschedpolicy(attr, SCHED_OTHER);
		pthread_attr_setschedparam(attr, &none);
	}
	if (processors_known && !sched_getaffinity(0, sizeof(now), now) &&
	    memcmp(now, processors, sizeof(now)) != 0)
		pthread_attr_setaffinity_np(attr, sizeof(processors), processors);
}

int threads_create(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	int error = pthread_attr_init(&attr);

	if (error)
		return error;
	make_room(&attr);
	leave_caller(&attr);
	error = pthread_create(thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	if ((error != EINVAL && error != EPERM) || pthread_attr_init(&attr))
		return error;
	/* The process may have lost these processors (cpuset), or the right to set a policy. */
	make_room(&attr);
	error = pthread_create(thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	return error;
}

int threads_start(const char *name, void *(*run)(void *arg))
{
	sigset_t all, mask;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	error = threads_create(&thread, run, NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (error)
		return -error;
	pthread_setname_np(thread, name);
	pthread_detach(thread);
	return 0;
}
