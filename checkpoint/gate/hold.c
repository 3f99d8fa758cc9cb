/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gate/hold.h"
#include "checkpoint/gate/gate.h"
#include "common/clock.h"

#include <string.h>

void hold_init(struct hold *hold, void (*wake)(void))
{
	*hold = (struct hold){.wake = wake};
	pthread_mutex_init(&hold->lock, NULL);
	pthread_cond_init(&hold->ordered, NULL);
}

void hold_give_order(struct hold *hold, const struct hold_order *order)
{
	pthread_mutex_lock(&hold->lock);
	hold->order.step += order->step;
	hold->order.commit |= order->commit;
	if (order->reach) {
		hold->order.reach = order->reach;
		hold->order.ntargets = order->ntargets;
		memcpy(hold->order.targets, order->targets, sizeof(order->targets));
	} else if (order->step) {
		hold->order.reach = 0;
	}
	pthread_cond_signal(&hold->ordered);
	pthread_mutex_unlock(&hold->lock);
}

bool hold_take_report(struct hold *hold, struct hold_report *report)
{
	bool fresh;

	pthread_mutex_lock(&hold->lock);
	fresh = hold->reported;
	*report = hold->report;
	hold->reported = false;
	pthread_mutex_unlock(&hold->lock);
	return fresh;
}

void hold_say(struct hold *hold, const struct hold_report *report)
{
	pthread_mutex_lock(&hold->lock);
	hold->report = *report;
	hold->reported = true;
	pthread_mutex_unlock(&hold->lock);
	hold->wake();
}

bool hold_take_order(struct hold *hold, double wait_ms, struct hold_order *order)
{
	struct timespec until = clock_timespec(clock_ms() + wait_ms);
	int timed_out = 0;

	pthread_mutex_lock(&hold->lock);
	while (!hold->order.step && !hold->order.commit && !hold->order.reach && !timed_out)
		timed_out = pthread_cond_clockwait(&hold->ordered, &hold->lock, CLOCK_MONOTONIC,
						   &until);
	*order = hold->order;
	hold->order.step = hold->order.reach = 0; /* a commit stays */
	pthread_mutex_unlock(&hold->lock);
	return order->step || order->commit || order->reach;
}
