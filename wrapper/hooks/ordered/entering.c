/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/ordered/entering.h"
#include "common/system/forks.h"
#include "common/processes/proc.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define ENTER_NS \
	1000000 /* of processor time: the way into the driver takes less than 10 us [H200] */
#define LOOK_US 50

FORKS_LOCK(lock);
static struct entering *threads; /* under lock */
static __thread pid_t own_tid __attribute__((tls_model("initial-exec")));

void entering_begin(struct entering *self)
{
	if (!own_tid)
		own_tid = gettid();
	*self = (struct entering){.tid = own_tid};
	pthread_mutex_lock(&lock);
	DL_APPEND(threads, self);
	pthread_mutex_unlock(&lock);
}

void entering_end(struct entering *self)
{
	pthread_mutex_lock(&lock);
	DL_DELETE(threads, self);
	pthread_mutex_unlock(&lock);
}

/* The processor time of a thread; 0: it is not known. Such a clock has the number that Linux gives it. */
static uint64_t used_ns(pid_t tid)
{
	const clockid_t of_thread = (clockid_t)(~(unsigned int)tid << 3 | 6);
	struct timespec used;

	if (clock_gettime(of_thread, &used))
		return 0;
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static bool is_inside(struct entering *e)
{
	uint64_t used = used_ns(e->tid);
	pid_t parent;
	char state;

	if (!e->seen) {
		e->seen = true;
		e->begun_ns = used;
	}
	state = host_process(e->tid, &parent);
	return !used || !state || state == 'S' || used - e->begun_ns >= ENTER_NS;
}

static bool all_inside(void)
{
	struct entering *e;

	pthread_mutex_lock(&lock);
	DL_FOREACH(threads, e)
		if (!is_inside(e))
			break;
	pthread_mutex_unlock(&lock);
	return !e;
}

void entering_wait(void)
{
	while (!all_inside())
		usleep(LOOK_US);
}

static void forget_in_child(void)
{
	threads = NULL;
	own_tid = 0;
}
FORKS_CHILD(forget_in_child);
