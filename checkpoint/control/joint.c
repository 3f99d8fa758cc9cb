/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/joint.h"
#include "checkpoint/control/state/state.h"
#include "common/protocol/pact.h"

#include <errno.h>
#include <stddef.h>

static struct pact *next, *now, *kept[JOINT_ENDS];
static bool returns; /* the loan has ended, and the others have yet to hear how */

/* Nobody here follows it any more. */
static void leave(struct pact **pact)
{
	if (*pact)
		pact_stop(*pact);
	pact_close(*pact);
	*pact = NULL;
}

/* It runs: the others need not wait for it. */
static void leave_to_others(struct pact **pact)
{
	pact_say(*pact, PACT_LEFT);
	pact_close(*pact);
	*pact = NULL;
}

/* Become a member. A pact that is full is one that it has left, or was never to be in. */
static int join(struct pact *pact)
{
	if (pact_join(pact))
		return 0;
	pact_close(pact);
	return -ESTALE;
}

/* Of the one that was there, nobody is a member any more. */
static int put(struct pact *pact, struct pact **place)
{
	leave(place);
	*place = pact;
	return 0;
}

static bool follows_later(const struct pact *pact)
{
	return (next && pact_is_later(next, pact)) || (now && pact_is_later(now, pact));
}

static bool is_same(const struct pact *one, const struct pact *pact)
{
	return one && pact_is_same(one, pact);
}

/* It has come before. */
static int take_again(const struct pact *pact)
{
	if (is_same(kept[JOINT_LOAN], pact))
		return !follows_later(pact) && joint_use(JOINT_LOAN) ? 0 : -ESTALE;
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
	if (join(pact))
		return -ESTALE;
	if (!follows_later(pact))
		return put(pact, &next);
	leave(&pact);
	return -ESTALE;
}

int joint_keep(enum joint_end end, int fd)
{
	struct pact *pact = pact_open(fd);

	if (!pact) {
		int error = -errno;

		leave(&kept[end]);
		return error;
	}
	return join(pact) ? -ESTALE : put(pact, &kept[end]);
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
	if (runs(state))
		leave_to_others(&next);
	else
		leave(&next);
}

/*
 * It is lent no more, and has not used the pact: somebody has asked for it alone, say, or its pause has failed. The
 * others of the loan do without it if it runs. Until it does, they wait: it may yet be asked to resume with them.
 */
static void look_for_return(const struct control_state *state)
{
	struct pact **loan = &kept[JOINT_LOAN];

	returns = *loan && !state->wishes[WISHER_SNAPSHOT] && state->snapshot == SNAPSHOT_NONE;
	if (!returns)
		return;
	if (control_wants_paused(state))
		leave(loan);
	else if (is_undisturbed(state))
		leave_to_others(loan);
	else
		pact_beat(*loan);
	returns = *loan != NULL;
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
	return next || now || returns;
}

void joint_after_fork(void)
{
	next = now = kept[JOINT_LEASE] = kept[JOINT_LOAN] = NULL;
}
