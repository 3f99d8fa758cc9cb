/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/saving.h"
#include "checkpoint/engine/fetch.h"
#include "checkpoint/engine/saved.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/host/spill.h"
#include "common/clock.h"
#include "common/system/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The digest of a granule for the snapshot; zero if the granule is empty or all zeros. */
static struct hash128 digest_of(const struct saved *s, size_t granule)
{
	const struct digest *digest = &s->digests[granule];

	if (s->slots[granule] >= SLOT_MAX)
		return (struct hash128){0};
	return (struct hash128){.low = digest->sum, .high = digest->mix};
}

/* The piece has its slots: note where its granules are. */
static void fill_piece(struct saving *s, const struct transfer_piece *p)
{
	const struct saved *saved = s->saved;

	for (size_t i = p->first; i < p->first + p->count; i++) {
		struct snapshot_run *run = &s->runs[i];

		if (s->digests)
			s->digests[i] = digest_of(saved, i);
		/* A granule that is unchanged by its digest is not even read. */
		run->nothing = saved->slots[i] >= SLOT_MAX ||
			       (s->digests && snapshot_has(s->writer, run->address, s->digests[i]));
		if (!run->nothing)
			run->host = saved_slot(saved, saved->slots[i], &run->offset);
	}
}

/* Called by the threads that write. */
static int wait_for(void *arg, size_t chunk)
{
	struct saving *s = arg;
	int ret;

	pthread_mutex_lock(&s->lock);
	while (!s->arrived[chunk] && !s->lost)
		pthread_cond_wait(&s->changed, &s->lock);
	ret = s->lost ? -ECANCELED : 0;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

static int make_lists(struct saving *s)
{
	const struct saved *saved = s->saved;

	s->regions = calloc(saved->nregions + 1, sizeof(*s->regions));
	s->runs = calloc(saved->ngranules + 1, sizeof(*s->runs));
	s->digests = saved->digests ? calloc(saved->ngranules + 1, sizeof(*s->digests)) : NULL;
	s->arrived = calloc(saved->ngranules + 1, sizeof(*s->arrived));
	if (!s->regions || !s->runs || !s->arrived || (saved->digests && !s->digests))
		return -ENOMEM;
	for (size_t i = 0; i < saved->nregions; i++) {
		const struct vmem_region *r = &saved->regions[saved->by_address[i]];

		s->regions[i] = (struct snapshot_region){r->start, r->size, r->dev};
	}
	for (const struct transfer_piece *p = saved->pieces; p < saved->pieces + saved->npieces;
	     p++)
		for (size_t i = 0; i < p->count; i++)
			s->runs[p->first + i] = (struct snapshot_run){
				.address = p->dev + i * VMEM_GRANULE, .size = VMEM_GRANULE};
	s->source = (struct snapshot_source){.regions = s->regions,
					     .nregions = saved->nregions,
					     .runs = s->runs,
					     .nruns = saved->ngranules,
					     .read = spill_read,
					     .digests = s->digests,
					     .wait = wait_for,
					     .arg = s};
	return 0;
}

static void free_lists(struct saving *s)
{
	free(s->regions);
	free(s->runs);
	free(s->digests);
	free(s->arrived);
}

int saving_begin(struct saving *s, const struct saved *saved, const struct snapshot_plan *plan,
		 size_t bytes, const bool *cancel, struct snapshot_error *error)
{
	pthread_condattr_t attr;
	int ret;

	*s = (struct saving){.saved = saved, .plan = plan, .cancel = cancel};
	ret = snapshot_begin(plan->path, plan->incremental, plan->codec, bytes, &s->writer, error);
	if (ret)
		return ret;
	ret = make_lists(s);
	if (ret) {
		free_lists(s);
		snapshot_end(s->writer);
		return snapshot_fail(error, ret, "out of memory");
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

static void *write_main(void *arg)
{
	struct saving *s = arg;
	int ret = snapshot_write(s->writer, &s->source, &s->done, s->cancel, &s->error);

	/* Only a pause for the snapshot alone fails with it; one that the user wants does not. */
	if (ret == -ECANCELED || (ret && s->plan->pause))
		__atomic_store_n(&s->stop, true, __ATOMIC_RELAXED);
	pthread_mutex_lock(&s->lock);
	s->result = ret;
	s->ms = clock_ms() - s->start_ms;
	s->over = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void saving_start(struct saving *s)
{
	s->start_ms = clock_ms();
	s->threaded = !threads_create(&s->thread, write_main, s);
}

void saving_arrived(void *saving, size_t piece)
{
	struct saving *s = saving;
	const struct transfer_piece *p = &s->saved->pieces[piece];

	fill_piece(s, p);
	pthread_mutex_lock(&s->lock);
	memset(&s->arrived[p->first], true, p->count * sizeof(*s->arrived));
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void saving_close(struct saving *s, bool all)
{
	for (size_t i = 0; all && i < s->saved->npieces; i++)
		if (!s->arrived[s->saved->pieces[i].first])
			saving_arrived(s, i);
	pthread_mutex_lock(&s->lock);
	s->lost = !all;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

bool saving_is_over(struct saving *s, double wait_ms)
{
	struct timespec until;
	bool over;

	if (!s->threaded && !s->over)
		write_main(s);
	until = clock_timespec(clock_ms() + wait_ms);
	pthread_mutex_lock(&s->lock);
	while (!s->over && !pthread_cond_timedwait(&s->changed, &s->lock, &until))
		;
	over = s->over;
	pthread_mutex_unlock(&s->lock);
	return over;
}

int saving_commit(struct saving *s, const struct snapshot_facts *facts, struct fetch_place *place,
		  struct snapshot_totals *totals)
{
	int dir = -1, ret = s->result;

	/* The lock does not do: see in_use.h. */
	if (!ret && s->plan->gives_back)
		ret = snapshot_occupy(s->writer, &s->error);
	if (!ret)
		ret = snapshot_finish(s->writer, facts, s->plan->image, &s->error);
	if (!ret && !s->plan->image)
		ret = dir = snapshot_keep(s->writer, &s->error);
	if (ret < 0)
		return ret;
	*totals = *snapshot_totals(s->writer);
	fetch_place_unlock(place);
	ownfd_set(&place->dir, dir);
	place->index = snapshot_number(s->writer);
	memcpy(place->id, snapshot_id(s->writer), sizeof(place->id));
	memcpy(place->path, s->plan->path, sizeof(place->path));
	snapshot_end(s->writer);
	s->writer = NULL;
	return 0;
}

void saving_end(struct saving *s)
{
	if (s->threaded)
		pthread_join(s->thread, NULL);
	snapshot_end(s->writer);
	free_lists(s);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
}
