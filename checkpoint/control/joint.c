/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/joint.h"
#include "checkpoint/control/state.h"
#include "common/pact.h"

#include <errno.h>
#include <stddef.h>

static struct pact *next, *now;

/* Nobody here follows it any more. */
static void leave(struct pact **pact)
{
	if (*pact)
		pact_stop(*pact);
	pact_close(*pact);
	*pact = NULL;
}

int joint_take(int fd)
{
	struct pact *pact = pact_open(fd);

	if (!pact)
		return -errno;
	if ((next && pact_is_later(next, pact)) || (now && pact_is_later(now, pact))) {
		leave(&pact);
		return -ESTALE;
	}
	if (!pact_join(pact)) {
		pact_close(pact);
		return -EOVERFLOW;
	}
	leave(&next);
	next = pact;
	return 0;
}

struct pact *joint_next(void)
{
	return next;
}

void joint_began(void)
{
	now = next;
	next = NULL;
}

void joint_ended(void)
{
	leave(&now);
}

/* No resume begins for it: the job runs already, or when it gets its turn; or it does not resume. */
static void settle_next(const struct control_state *state)
{
	if (!control_wants_paused(state) &&
	    (state->rest == STATE_RUNNING || state->lease != LEASE_OURS)) {
		pact_say(next, PACT_LEFT);
		pact_close(next);
		next = NULL;
	} else {
		leave(&next);
	}
}

void joint_look(const struct control_state *state)
{
	if (next && !state->joint)
		settle_next(state);
	if (next)
		pact_watch(next);
	if (now)
		pact_watch(now);
}

bool joint_is_on(void)
{
	return next || now;
}

void joint_after_fork(void)
{
	next = now = NULL;
}
