/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/turn/turn_needs.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/server.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/release.h"
#include "vmem/vmem.h"

struct need {
	size_t mapped, total;
};

static struct need said[GPU_MAX];

/* The engine's lists must not be read while memory moves. */
static bool moves(void)
{
	enum operation op = control_operation(job_now());

	return op != OP_NONE && op != OP_PROBE && op != OP_TIDY && op != OP_TRIM;
}

/* @missing: bytes of each device that are out; NULL: not known, so what was said before still holds. */
static void say(const struct client *c, bool all, const size_t *missing)
{
	const struct gpu *devices;
	size_t count;

	devices = devices_all(&count);
	for (size_t i = 0; i < count; i++) {
		struct vmem_stats stats;
		struct need need;

		if (!missing && !said[i].total)
			continue;
		vmem_get_device_stats(i, &stats);
		need.mapped = stats.mapped;
		need.total = missing                        ? stats.mapped + missing[i]
			     : said[i].total > stats.mapped ? said[i].total
							    : stats.mapped;
		if (need.mapped == said[i].mapped && need.total == said[i].total &&
		    !(all && need.total))
			continue;
		said[i] = need;
		server_say(c, "need %s %zu %zu", devices[i].uuid, need.mapped, need.total);
	}
}

void turn_needs_say_at_rest(const struct client *c, bool all)
{
	size_t missing[GPU_MAX];

	engine_missing(missing);
	/* Its context comes back with its memory. */
	for (size_t i = 0; i < GPU_MAX && engine_is_released(); i++)
		missing[i] += missing[i] ? release_held()[i] : 0;
	say(c, all, missing);
}

void turn_needs_say(const struct client *c, bool all)
{
	if (!moves())
		turn_needs_say_at_rest(c, all);
}

void turn_needs_introduce(const struct client *c)
{
	if (moves())
		say(c, true, NULL);
	else
		turn_needs_say(c, true);
}
