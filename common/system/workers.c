/* SPDX-License-Identifier: Apache-2.0 */
#include "common/size.h"
#include "common/system/workers.h"
#include "common/system/threads.h"
#include "common/text.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "workers: "
#include "common/log.h"

#define MAX_THREADS 64

bool workers_go_on(struct workers *w)
{
	if (w->cancel && __atomic_load_n(w->cancel, __ATOMIC_RELAXED))
		workers_fail(w, -ECANCELED);
	return !__atomic_load_n(&w->result, __ATOMIC_RELAXED);
}

bool workers_next(struct workers *w, size_t *item)
{
	if (!workers_go_on(w))
		return false;
	*item = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);
	return *item < w->count;
}

void workers_fail(struct workers *w, int error)
{
	int none = 0;

	__atomic_compare_exchange_n(&w->result, &none, error, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

size_t workers_threads(const struct workers *w, size_t threads)
{
	long ncpu = sysconf(_SC_NPROCESSORS_ONLN);

	return size_min(size_min(size_min(threads, MAX_THREADS), w->count), ncpu > 1 ? ncpu : 1);
}

int workers_run(struct workers *w, size_t threads, void *(*work)(void *arg), void *arg)
{
	pthread_t ids[MAX_THREADS];
	size_t want = workers_threads(w, threads), started = 0;
	int error = 0;

	w->next = 0;
	w->result = 0;
	/* The caller itself does the work of a single thread. */
	while (want > 1 && started < want && !error) {
		error = threads_create(&ids[started], work, arg);
		started += !error;
	}
	if (error)
		pr_warn("only %zu of %zu threads: %s", started ? started : 1, want,
			error_text(error));
	if (!started && w->count)
		work(arg);
	for (size_t i = 0; i < started; i++)
		pthread_join(ids[i], NULL);
	return w->result;
}
