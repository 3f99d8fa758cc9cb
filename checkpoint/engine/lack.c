/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/engine/internal.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/release/freemem.h"
#include "vmem/vmem.h"

#include <stdint.h>
#include <stdio.h>

/* If the driver said that memory is missing, but not where, and the job uses one GPU: it is there. */
static struct gpu_lack guess(void)
{
	struct gpu_lack lack = {.dev = -1, .free = SIZE_MAX};
	size_t missing[GPU_MAX];

	engine_missing(missing);
	for (int dev = 0; dev < GPU_MAX; dev++) {
		size_t needed = missing[dev];

		if (engine.released)
			needed += release_held()[dev];
		if (!needed)
			continue;
		if (lack.dev >= 0)
			return (struct gpu_lack){.dev = -1};
		lack.dev = dev;
		lack.needed = needed;
	}
	return lack;
}

int engine_fail_lack(struct engine_op *op)
{
	const struct gpu_lack lack = engine.lack.dev < 0 ? guess() : engine.lack;
	char amount[96], holders[160] = "", waited[FORMAT_SIZE];
	const struct gpu *gpu;
	size_t count;

	format_seconds(waited, op->timeout_ms);
	if (lack.dev < 0)
		return engine_fail(&op->result, END_TIMEOUT,
				   PRI_GIB " of GPU memory did not come free within %s; the job "
					   "stays paused",
				   GIB_ARGS(saved_bytes(&engine.saved)), waited);
	gpu = &devices_all(&count)[lack.dev];
	freemem_holders(gpu, holders, sizeof(holders));
	if (lack.free == SIZE_MAX)
		snprintf(amount, sizeof(amount),
			 "has less free than the " PRI_GIB " that are needed",
			 GIB_ARGS(lack.needed));
	else
		snprintf(amount, sizeof(amount),
			 "lacks " PRI_GIB " of the " PRI_GIB " that are needed",
			 GIB_ARGS(lack.needed - lack.free), GIB_ARGS(lack.needed));
	return engine_fail(&op->result, END_TIMEOUT,
			   "GPU %d (%s, %s) %s, after %s%s%s; the job "
			   "stays paused",
			   lack.dev, gpu->name, gpu->uuid, amount, waited, *holders ? "; " : "",
			   holders);
}
