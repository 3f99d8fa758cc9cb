/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_WORLD_H
#define CUDAW_CONTROL_WORLD_H
/* What the tests of the control thread's decisions share: events, and looks at the actions that follow. */
#include "checkpoint/control/state/state.h"
#include "tests/check_suite.h"

/* The ends of a resume: its time is over; it was cancelled. */
static const struct control_event timed_out = {
	.kind = EV_ENDED, .code = END_TIMEOUT, .written = END_OK, .reason = "", .paused = true};
static const struct control_event called_off = {
	.kind = EV_ENDED, .code = END_BUSY, .written = END_OK, .reason = "", .paused = true};

static inline size_t count(const struct control_actions *actions, enum action_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < actions->n; i++)
		n += actions->list[i].kind == kind;
	return n;
}

static inline const struct control_action *find(const struct control_actions *actions,
						enum action_kind kind)
{
	for (size_t i = 0; i < actions->n; i++)
		if (actions->list[i].kind == kind)
			return &actions->list[i];
	ck_abort_msg("there is no action %d", kind);
}

static inline void take_signal(struct control_state *s, enum event_kind kind)
{
	struct control_actions actions = {0};

	control_take(s, &(struct control_event){.kind = kind, .by_signal = true}, &actions);
	control_decide(s, false, false, &actions);
}

#endif
