/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/gpus.h"
#include "tools/daemon/rules.h"
#include "tools/daemon/turns/turns.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "gpus: "
#include "common/log.h"

#define LASTS_S   4    /* memory that others have is theirs */
#define FRESH_MS  1000 /* of a sample by which an allocation is refused */
#define NEW_PART  10   /* of the time, such a part at most is spent on waiting for new GPUs */
#define RETURNS_S 10 /* a member that has left may join again (protocol.h), or its memory is free */

static struct daemon_gpu gpus[TURNS_GPUS];
static size_t last_other[TURNS_GPUS]; /* of the sample before */
static bool is_owed;   /* a sample, to a member that joined while one was under way */
static bool is_second; /* the one under way, or the last one, was owed */

/* What was seen in a second: the least that was used on the GPU, and that others had; the most of members. */
static struct second {
	long number;
	size_t used, other; /* SIZE_MAX: not known */
	size_t mapped;
} seconds[TURNS_GPUS][RETURNS_S + 1];

/* New GPUs have held up decisions for so long, less a part of the time since; and whether one did at the last look. */
static double held_up_ms, looked_ms;
static bool is_held_up;

static double began_ms;
static int ngpus;
static struct gpus_users users;

void gpus_init(const struct gpus_users *of, double now)
{
	began_ms = now;
	users = *of;
}

static int index_of(const char *uuid)
{
	for (int i = 0; i < ngpus; i++)
		if (!strcmp(gpus[i].uuid, uuid))
			return i;
	return -1;
}

/* A place for one more GPU; -1: there is none. Any user may have told of GPUs that do not exist. */
static int find_place(void)
{
	if (ngpus < TURNS_GPUS)
		return ngpus++;
	for (int i = 0; i < ngpus; i++)
		if (!gpus[i].total && !gpus[i].drained && !users.used(i))
			return i;
	for (int i = 0; i < ngpus; i++) {
		if (!gpus[i].unknown || gpus[i].total || gpus[i].drained)
			continue;
		users.end(i);
		return i;
	}
	return -1;
}

int gpus_find(const char *uuid)
{
	int i = index_of(uuid);

	if (i >= 0)
		return i;
	i = find_place();
	if (i < 0)
		return -1;
	gpus[i] = (struct daemon_gpu){.capacity = TURNS_NO_LIMIT};
	memset(seconds[i], 0, sizeof(seconds[i]));
	snprintf(gpus[i].uuid, sizeof(gpus[i].uuid), "%s", uuid);
	return i;
}

const struct daemon_gpu *gpus_get(int index)
{
	return index < ngpus ? &gpus[index] : NULL;
}

int gpus_drain(const char *uuid, bool drained)
{
	int i = gpus_find(uuid);

	if (i < 0)
		return -ENOSPC;
	gpus[i].drained = drained;
	return 0;
}

static void give_up(struct daemon_gpu *gpu)
{
	gpu->asked = false;
	gpu->known = true;
}

static bool is_under_way(void)
{
	for (int i = 0; i < ngpus; i++)
		if (gpus[i].asked)
			return true;
	return false;
}

/* Of GPUs that were looked at before. Others may tell of new ones all the time. */
static bool is_again_under_way(void)
{
	for (int i = 0; i < ngpus; i++)
		if (gpus[i].asked && gpus[i].known)
			return true;
	return false;
}

void gpus_sample(double age_ms, double now)
{
	bool under_way = is_again_under_way();

	for (int i = 0; i < ngpus; i++) {
		struct daemon_gpu *gpu = &gpus[i];
		bool again = gpu->asked_ms > 0;

		if (gpu->asked || (again && (under_way || now - gpu->asked_ms < age_ms)))
			continue;
		gpu->asked_ms = now;
		gpu->asked = true;
		if (sampler_ask(gpu->uuid))
			give_up(gpu);
	}
}

void gpus_sample_anew(double now)
{
	is_owed = is_under_way();
	gpus_sample(0, now);
}

/* One sample for those that have come while another was under way, and no third one: decisions wait for it. */
static void sample_owed(double now)
{
	if (is_under_way())
		return;
	is_second = is_owed && !is_second;
	is_owed = false;
	if (is_second)
		gpus_sample(0, now);
}

static void note_second(int i, double now, size_t used, size_t other, size_t mapped)
{
	long number = (long)(now / 1000);
	struct second *s = &seconds[i][number % (RETURNS_S + 1)];

	if (s->number != number)
		*s = (struct second){.number = number, .used = SIZE_MAX, .other = SIZE_MAX};
	s->used = used < s->used ? used : s->used;
	s->other = other < s->other ? other : s->other;
	s->mapped = mapped > s->mapped ? mapped : s->mapped;
}

/*
 * What others had whenever that was looked at in LASTS_S: *@other as members have said; returns what it was even
 * if they had all the time what they had at any time in RETURNS_S. 0: not known.
 */
static size_t lasting(int i, double now, size_t *other)
{
	size_t used = SIZE_MAX, least = SIZE_MAX, mapped = 0;
	bool for_long = false;

	*other = 0;
	for (const struct second *s = seconds[i]; s < seconds[i] + RETURNS_S + 1; s++) {
		long age = (long)(now / 1000) - s->number;

		if (age > RETURNS_S)
			continue;
		mapped = s->mapped > mapped ? s->mapped : mapped;
		if (age > LASTS_S || s->used == SIZE_MAX)
			continue;
		used = s->used < used ? s->used : used;
		least = s->other < least ? s->other : least;
		for_long |= age >= LASTS_S - 1;
	}
	/* Members of an earlier daemon may join. */
	if (!for_long || now - began_ms < RETURNS_S * 1000)
		return 0;
	*other = least;
	return used > mapped ? used - mapped : 0;
}

static size_t all_but(const struct daemon_gpu *gpu, size_t other)
{
	size_t margin = rules_value(CONF_MARGIN);

	return gpu->total > other + margin ? gpu->total - other - margin : 0;
}

static void set_lasting(int i, double now)
{
	struct daemon_gpu *gpu = &gpus[i];
	size_t least = lasting(i, now, &gpu->lasts);

	gpu->most = rules_has_turns(gpu->uuid) ? all_but(gpu, least) : 0;
}

static void set_others(int i, size_t other, double now)
{
	struct daemon_gpu *gpu = &gpus[i];

	gpu->other = other;
	gpu->capacity = rules_has_turns(gpu->uuid) ? all_but(gpu, other) : TURNS_NO_LIMIT;
	set_lasting(i, now);
}

void gpus_leave(int i, size_t mapped, size_t all, double now)
{
	if (!gpus[i].total)
		return;
	note_second(i, now, SIZE_MAX, SIZE_MAX, all);
	last_other[i] = gpus[i].other + mapped;
	set_others(i, last_other[i], now);
}

void gpus_context_back(int i, size_t bytes, double now)
{
	for (struct second *s = seconds[i]; s < seconds[i] + RETURNS_S + 1; s++)
		s->other += s->other == SIZE_MAX ? 0 : bytes;
	if (gpus[i].total)
		set_lasting(i, now);
}

static void take_sample(int i, const struct sample *sample, double now)
{
	struct daemon_gpu *gpu = &gpus[i];
	bool first = !gpu->total;
	size_t used = sample->total - sample->free, other;
	long mapped;

	give_up(gpu);
	gpu->unknown = !sample->total;
	if (!sample->total || sample->free > sample->total)
		return;
	gpu->taken_ms = now;
	users.shown(i, sample, gpu->asked_ms, now);
	mapped = users.mapped(i, gpu->asked_ms);
	/* Of what is used it is not known now whose it is. */
	if (mapped < 0) {
		if (gpu->total)
			set_lasting(i, now);
		else if (rules_has_turns(gpu->uuid))
			gpu->most = TURNS_NO_LIMIT;
		return;
	}
	other = used > (size_t)mapped ? used - mapped : 0;
	gpu->total = sample->total;
	gpu->used = used;
	note_second(i, now, used, other, (size_t)mapped);
	set_others(i, first || other < last_other[i] ? other : last_other[i], now);
	last_other[i] = other;
}

void gpus_take(double now)
{
	struct sample sample;
	int got;

	while ((got = sampler_take(&sample)) > 0) {
		int i = index_of(sample.uuid);

		if (i >= 0)
			take_sample(i, &sample, now);
	}
	if (!got) {
		sample_owed(now);
		return;
	}
	pr_warn("the process that asks NVML has ended");
	for (int i = 0; i < ngpus; i++)
		give_up(&gpus[i]);
}

bool gpus_is_fresh(int i, double now)
{
	/* NVML may have ended, or seem to hang: then nothing newer comes. */
	return now - gpus[i].taken_ms <= FRESH_MS ||
	       (gpus[i].asked ? now - gpus[i].asked_ms >= GPUS_PATIENCE_MS
			      : gpus[i].asked_ms > gpus[i].taken_ms);
}

static bool is_waited_for(const struct daemon_gpu *gpu, double now)
{
	return (gpu->asked || !gpu->known) &&
	       (!gpu->asked_ms || now - gpu->asked_ms < GPUS_PATIENCE_MS);
}

/* Whether decisions wait for new GPUs, if there are @some: any user may name new ones all the time. */
static bool wait_for_new(bool some, double now)
{
	double passed = now - looked_ms;

	held_up_ms += is_held_up ? passed : -passed / NEW_PART;
	if (held_up_ms < 0)
		held_up_ms = 0;
	if (held_up_ms > GPUS_PATIENCE_MS)
		held_up_ms = GPUS_PATIENCE_MS;
	is_held_up = some;
	looked_ms = now;
	return some && held_up_ms < GPUS_PATIENCE_MS;
}

bool gpus_are_settled(double now)
{
	bool settled = true, some = false;

	for (int i = 0; i < ngpus; i++) {
		if (gpus[i].known)
			settled &= !is_waited_for(&gpus[i], now);
		else
			some |= is_waited_for(&gpus[i], now);
	}
	return !wait_for_new(some, now) && settled;
}
