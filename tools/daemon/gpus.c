/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/gpus.h"
#include "tools/daemon/rules.h"
#include "tools/daemon/sampler.h"
#include "tools/daemon/turns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "gpus: "
#include "common/log.h"

static struct daemon_gpu gpus[TURNS_GPUS];
static size_t last_other[TURNS_GPUS]; /* of the sample before */
static int ngpus;
static long (*mapped_on)(int gpu);
static bool (*is_used)(int gpu);
static void (*end_users)(int gpu);

void gpus_init(long (*mapped)(int gpu), bool (*used)(int gpu), void (*end)(int gpu))
{
	mapped_on = mapped;
	is_used = used;
	end_users = end;
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
		if (!gpus[i].total && !gpus[i].drained && !is_used(i))
			return i;
	for (int i = 0; i < ngpus; i++) {
		if (!gpus[i].unknown || gpus[i].total || gpus[i].drained)
			continue;
		end_users(i);
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
	gpus[i] = (struct daemon_gpu){.capacity = TURNS_NO_LIMIT, .size = TURNS_NO_LIMIT};
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

void gpus_sample(double age_ms, double now)
{
	bool under_way = false;

	for (int i = 0; i < ngpus; i++)
		under_way |= gpus[i].asked;
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

static void set_others(int i, size_t other)
{
	struct daemon_gpu *gpu = &gpus[i];
	size_t margin = rules_value(CONF_MARGIN);

	gpu->other = other;
	gpu->size = gpu->total > margin ? gpu->total - margin : 0;
	gpu->capacity = gpu->total > other + margin ? gpu->total - other - margin : 0;
	if (!rules_share(gpu->uuid))
		gpu->capacity = TURNS_NO_LIMIT;
}

void gpus_leave(int i, size_t mapped)
{
	if (!gpus[i].total)
		return;
	last_other[i] = gpus[i].other + mapped;
	set_others(i, last_other[i]);
}

static void take_sample(int i, const struct sample *sample)
{
	struct daemon_gpu *gpu = &gpus[i];
	bool first = !gpu->total;
	size_t used = sample->total - sample->free, other;
	long mapped = mapped_on(i);

	give_up(gpu);
	gpu->unknown = !sample->total;
	gpu->unsure = mapped < 0 && sample->total;
	if (!sample->total || sample->free > sample->total || mapped < 0)
		return;
	other = used > (size_t)mapped ? used - mapped : 0;
	gpu->total = sample->total;
	gpu->used = used;
	set_others(i, first || other < last_other[i] ? other : last_other[i]);
	last_other[i] = other;
}

void gpus_take(void)
{
	struct sample sample;
	int got;

	while ((got = sampler_take(&sample)) > 0) {
		int i = index_of(sample.uuid);

		if (i >= 0)
			take_sample(i, &sample);
	}
	if (!got)
		return;
	pr_warn("the process that asks NVML has ended");
	for (int i = 0; i < ngpus; i++)
		give_up(&gpus[i]);
}

bool gpus_are_settled(double now)
{
	for (int i = 0; i < ngpus; i++)
		if (gpus[i].asked || !gpus[i].known)
			if (!gpus[i].asked_ms || now - gpus[i].asked_ms < GPUS_PATIENCE_MS)
				return false;
	return true;
}
