/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/gpus.h"
#include "tools/daemon/sampler.h"
#include "tools/daemon/turns.h"

#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "gpus: "
#include "common/log.h"

/* Without NVML: more than any GPU has, and sums of it do not overflow. */
#define NO_LIMIT ((size_t)1 << 60)

static struct daemon_gpu gpus[TURNS_GPUS];
static size_t last_other[TURNS_GPUS]; /* of the sample before */
static int ngpus;
static size_t margin;
static long (*mapped_on)(int gpu);

void gpus_init(size_t keep, long (*mapped)(int gpu))
{
	margin = keep;
	mapped_on = mapped;
}

int gpus_find(const char *uuid)
{
	for (int i = 0; i < ngpus; i++)
		if (!strcmp(gpus[i].uuid, uuid))
			return i;
	if (ngpus == TURNS_GPUS)
		return -1;
	gpus[ngpus].capacity = NO_LIMIT;
	snprintf(gpus[ngpus].uuid, sizeof(gpus[ngpus].uuid), "%s", uuid);
	return ngpus++;
}

const struct daemon_gpu *gpus_get(int index)
{
	return index < ngpus ? &gpus[index] : NULL;
}

static void give_up(struct daemon_gpu *gpu)
{
	gpu->asked = false;
	gpu->known = true;
}

void gpus_sample(double age_ms, double now)
{
	for (int i = 0; i < ngpus; i++) {
		struct daemon_gpu *gpu = &gpus[i];

		if (gpu->asked || (gpu->asked_ms && now - gpu->asked_ms < age_ms))
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

	gpu->other = other;
	gpu->capacity = gpu->total > other + margin ? gpu->total - other - margin : 0;
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
		int i = gpus_find(sample.uuid);

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
