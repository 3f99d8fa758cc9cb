/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DECIDE_H
#define CUDAW_DECIDE_H
/* What the files of the state machine share: how they write what is to be done. */
#include "checkpoint/control/state/state.h"

#include <assert.h>

#define SUPERSEDED "superseded by a later request"

static inline struct control_action *act(struct control_actions *actions, enum action_kind kind)
{
	assert(actions->n < ACTIONS_MAX);
	actions->list[actions->n] = (struct control_action){.kind = kind};
	return &actions->list[actions->n++];
}

static inline void answer(struct control_actions *actions, enum server_wait whom,
			  enum action_answer with)
{
	struct control_action *a = act(actions, ACT_ANSWER);

	a->whom = whom;
	a->answer = with;
}

static inline void answer_code(struct control_actions *actions, enum server_wait whom,
			       enum end_code code, const char *reason)
{
	struct control_action *a = act(actions, ACT_ANSWER);

	a->whom = whom;
	a->code = code;
	a->reason = reason;
}

/* The snapshot is done: the pause ends with it, unless the user wants it. */
void control_close_snapshot(struct control_state *s, struct control_actions *actions);

/* One that would resume without the others stays paused. */
void control_keep_with_others(struct control_state *s);

#endif
