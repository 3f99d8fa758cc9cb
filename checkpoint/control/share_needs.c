/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/share_needs.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/server.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/release/devices.h"
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

void share_needs_say(const struct client *c, bool all)
{
	const struct gpu *devices;
	size_t missing[GPU_MAX], count;

	if (moves())
		return;
	devices = devices_all(&count);
	engine_missing(missing);
	for (size_t i = 0; i < count; i++) {
		struct vmem_stats stats;
		struct need need;

		vmem_get_device_stats(i, &stats);
		need = (struct need){stats.mapped, stats.mapped + missing[i]};
		if (need.mapped == said[i].mapped && need.total == said[i].total &&
		    !(all && need.total))
			continue;
		said[i] = need;
		server_say(c, "need %s %zu %zu", devices[i].uuid, need.mapped, need.total);
	}
}
