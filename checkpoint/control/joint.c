/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/joint.h"
#include "checkpoint/control/state/state.h"
#include "common/protocol/pact.h"

#include <errno.h>
#include <stddef.h>

static struct pact *next, *now, *kept[JOINT_ENDS];
static bool lent; /* at the last look */

/* Nobody here follows it any more. */
static void leave(struct pact **pact)
{
	if (*pact)
		pact_stop(*pact);
	pact_close(*pact);
	*pact = NULL;
}

/* Become a member of *@pact, which then is @place; of the one that was there, nobody is any more. */
static int join(struct pact *pact, struct pact **place)
{
	if (!pact_join(pact)) {
		pact_close(pact);
		return -EOVERFLOW;
	}
	leave(place);
	*place = pact;
	return 0;
}

static bool is_same(const struct pact *one, const struct pact *pact)
{
	return one && pact_is_same(one, pact);
}

/* It has come before. */
static int take_again(const struct pact *pact)
{
	if (is_same(kept[JOINT_LOAN], pact))
		return joint_use(JOINT_LOAN) ? 0 : -ESTALE;
	return is_same(next, pact) ? 0 : -ESTALE;
}

int joint_take(int fd)
{
	struct pact *pact = pact_open(fd);

	if (!pact)
		return -errno;
	if (is_same(kept[JOINT_LOAN], pact) || is_same(next, pact) || is_same(now, pact)) {
		int error = take_again(pact);

		pact_close(pact);
		return error;
	}
	if ((next && pact_is_later(next, pact)) || (now && pact_is_later(now, pact))) {
		leave(&pact);
		return -ESTALE;
	}
	return join(pact, &next);
}

int joint_keep(enum joint_end end, int fd)
{
	struct pact *pact = pact_open(fd);

	return pact ? join(pact, &kept[end]) : -errno;
}

bool joint_use(enum joint_end end)
{
	if (!kept[end])
		return false;
	/* A request has come at the same moment. */
	if (next) {
		leave(&kept[end]);
		return false;
	}
	next = kept[end];
	kept[end] = NULL;
	return true;
}

void joint_beat(enum joint_end end)
{
	if (kept[end])
		pact_beat(kept[end]);
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

/* The job runs, or does so when it gets its turn. */
static bool runs(const struct control_state *state)
{
	return !control_wants_paused(state) &&
	       (state->rest == STATE_RUNNING || state->lease != LEASE_OURS);
}

/* True if it goes on to run, whatever becomes of the operation under way. */
static bool is_undisturbed(const struct control_state *state)
{
	enum operation op = control_operation(state);

	return runs(state) && op != OP_PAUSE && op != OP_RESUME && op != OP_YIELD && op != OP_FILL;
}

/* No resume begins for it: the job runs already, or when it gets its turn; or it does not resume. */
static void settle_next(const struct control_state *state)
{
	if (runs(state)) {
		pact_say(next, PACT_LEFT);
		pact_close(next);
		next = NULL;
	} else {
		leave(&next);
	}
}

/* It is lent no more, or its snapshot is done. */
static void look_for_return(const struct control_state *state)
{
	bool was = lent;

	lent = state->wishes[WISHER_SNAPSHOT] || state->snapshot != SNAPSHOT_NONE;
	if (was && !lent)
		leave(&kept[JOINT_LOAN]);
}

void joint_look(const struct control_state *state)
{
	look_for_return(state);
	/* Not only after that: a trim, say, may wait for kernels that wait for the others. */
	if (next && (!state->joint || is_undisturbed(state)))
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
	next = now = kept[JOINT_LEASE] = kept[JOINT_LOAN] = NULL;
}
