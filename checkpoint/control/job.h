/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOB_H
#define CUDAW_JOB_H
/*
 * The job as the control thread knows it: its state (state.h), the results of its last operations,
 * and the actions that an event calls for: begin or cancel an operation, answer clients.
 *
 * Only the control thread calls it.
 */
#include "checkpoint/control/answers.h"
#include "checkpoint/control/caller.h"
#include "checkpoint/control/state/state.h"

struct hold_order;
struct snapshot_plan;

/* Until an operation that had no thread is tried again. */
#define JOB_RETRY_MS 1000

/* Take @event, and act. 0, or -EBUSY for a snapshot beside another one: nothing has changed. */
int job_take(const struct control_event *event);

/*
 * The same for a snapshot, which @asks is to finish; NULL: a signal asked for it. @timeout_ms is
 * that of the pause that it may need; @own_limit: as in struct operation_options.
 */
int job_want_snapshot(const struct snapshot_plan *plan, double timeout_ms, bool own_limit,
		      const struct caller *asks);

/* Pass an order to step, or to reach targets, to what is held. */
void job_give_order(const struct hold_order *order);

/* Begin what is wanted, or tell those who wait for it that it is so already. */
void job_settle(void);

/*
 * The operation has ended (operation_take_end()). @say_what_is_left (turn_gave()) is called when it is said how much
 * has moved, and before the rest of its end.
 */
void job_end_operation(void (*say_what_is_left)(void));

/*
 * If it is time: try again to begin an operation that had no thread; pause a job again whose resume got no
 * turn.
 */
void job_retry(void);

/*
 * EV_PAUSE for @asks, which is to have a snapshot: the job is lent to it, and keeps the pact behind @pact for the end
 * of that; -1: none. -EBUSY: there is another snapshot; or an error of joint_keep(). Then nothing has changed.
 */
int job_lend(const struct control_event *event, const struct caller *asks, int pact);

/* Whether it is lent to @asks, who may have ended since: the end alone would say the same (job_look_for_caller()). */
bool job_is_given_back_by(const struct caller *asks);

/* See whether the process that is to finish a snapshot has ended without a word. */
bool job_awaits_caller(void);
void job_look_for_caller(void);

/* The job knows where its snapshot is, after a restore. */
void job_moved(void);

/* True from a restore to job_moved(), or to a resume: an order of cudawd would be in the way of both. */
bool job_awaits_move(void);

/*
 * Bring the job to rest for a moment (EV_PROBE); when no probe is under way any more, whether the last
 * one found it with nothing to do.
 */
void job_probe(void);
bool job_came_to_rest(void);

/* True once after a yield that could not stop the process alone; then @why says why. */
bool job_refused_yield(char why[PROTOCOL_MESSAGE]);

/* True if a yield has once taken the context: a restored one may fail beside others (docs/limits.md). */
bool job_gave_context(void);

/* Tell clients how far the operation is. */
void job_send_news(void);

/* What is wanted; what the job does; both and the last results, valid until the next call. */
const struct control_state *job_now(void);
enum job_state job_state(void);
struct answers_facts job_facts(void);

#endif
