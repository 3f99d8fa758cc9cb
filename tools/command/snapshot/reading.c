/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/reading.h"

#include "common/clock.h"
#include "common/system/hostmem.h"
#include "common/system/memfd.h"
#include "tools/process/criu/criu.h"
#include "tools/report/progress.h"

#include <time.h>
#include <unistd.h>

#define TICK_MS 100

static void unmap(struct reading *r)
{
	hostmem_release(r->what.into, r->size);
	r->what.into = NULL;
}

static void close_memory(struct reading *r)
{
	unmap(r);
	if (r->memory >= 0)
		close(r->memory);
	r->memory = -1;
}

static void get_memory(struct reading *r, size_t beside)
{
	r->size = (r->snapshot->index.nplaces * SNAPSHOT_CHUNK + SNAPSHOT_BLOCK - 1) &
		  -SNAPSHOT_BLOCK;
	if (!r->size || !hostmem_has(r->size + beside))
		return;
	/* Without it the job reads the snapshot itself. */
	r->memory = memfd_make_sized("cudaw-restore", r->size);
	if (r->memory >= 0)
		r->what.into = hostmem_map(r->memory, 0, r->size);
	if (!r->what.into)
		close_memory(r);
}

static void *read_main(void *arg)
{
	struct reading *r = arg;
	double begin = clock_ms();

	r->result = snapshot_read(&r->what, &r->error);
	/* This takes a while, in which CRIU may still be at work. */
	if (r->full)
		close_memory(r);
	else
		unmap(r);
	r->ms = clock_ms() - begin;
	return NULL;
}

void reading_begin(struct reading *r, const struct snapshot *snapshot, bool keep, size_t beside)
{
	*r = (struct reading){.snapshot = snapshot, .memory = -1};
	r->what = (struct snapshot_read){.dir = snapshot->dir,
					 .index = &snapshot->index,
					 .full = &r->full,
					 .done = &r->done,
					 .cancel = &r->cancel};
	if (keep)
		get_memory(r, beside);
	r->apart = !pthread_create(&r->thread, NULL, read_main, r);
	if (!r->apart)
		read_main(r);
}

/* Join the thread; an error if it has not ended within @ms. */
static int join_for(pthread_t thread, double ms)
{
	struct timespec until;

	/* CLOCK_REALTIME, as TSan does not know pthread_clockjoin_np(). */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)(ms * 1e6);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return pthread_timedjoin_np(thread, NULL, &until);
}

int reading_end(struct reading *r, const char *path)
{
	progress_begin("verifying");
	while (r->apart && join_for(r->thread, TICK_MS)) {
		progress_bytes(path, __atomic_load_n(&r->done, __ATOMIC_RELAXED),
			       r->snapshot->manifest.totals.bytes);
		__atomic_store_n(&r->cancel, criu_is_interrupted(), __ATOMIC_RELAXED);
	}
	progress_end();
	r->apart = false;
	return r->result;
}

void reading_drop(struct reading *r)
{
	__atomic_store_n(&r->cancel, true, __ATOMIC_RELAXED);
	if (r->apart)
		pthread_join(r->thread, NULL);
	r->apart = false;
	close_memory(r);
}
