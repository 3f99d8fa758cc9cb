/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/host_work.h"
#include "common/clock.h"
#include "common/system/forks.h"

#include <pthread.h>
#include <stddef.h>

#include <utlist.h>

FORKS_LOCK(lock);
static struct host_run *runs;     /* under lock: in the order of their beginnings */
static struct host_counts counts; /* under lock */
static bool made;

void host_work_begins(struct host_run *run)
{
	run->begin_ms = clock_ms();
	pthread_mutex_lock(&lock);
	DL_APPEND(runs, run);
	pthread_mutex_unlock(&lock);
}

void host_work_ends(struct host_run *run)
{
	pthread_mutex_lock(&lock);
	DL_DELETE(runs, run);
	counts.ended++;
	pthread_mutex_unlock(&lock);
}

void host_work_launched(void)
{
	pthread_mutex_lock(&lock);
	counts.launched++;
	pthread_mutex_unlock(&lock);
}

struct host_counts host_work_counts(void)
{
	struct host_counts now;

	pthread_mutex_lock(&lock);
	now = counts;
	pthread_mutex_unlock(&lock);
	return now;
}

bool host_work_runs(struct host_run *found)
{
	bool any;

	pthread_mutex_lock(&lock);
	any = runs != NULL;
	if (any)
		*found = *runs;
	pthread_mutex_unlock(&lock);
	return any;
}

void host_work_made(void)
{
	if (!host_work_may_wait())
		__atomic_store_n(&made, true, __ATOMIC_RELAXED);
}

bool host_work_may_wait(void)
{
	return __atomic_load_n(&made, __ATOMIC_RELAXED);
}
