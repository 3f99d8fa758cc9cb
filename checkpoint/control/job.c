/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/job.h"
#include "checkpoint/control/history.h"
#include "checkpoint/control/joint.h"
#include "checkpoint/control/operation.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/plan.h"
#include "checkpoint/gate/hold.h"
#include "common/clock.h"
#include "common/protocol/quota.h"
#include "common/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "control: "
#include "common/log.h"

static struct control_state state;
static struct snapshot_plan want_plan;
static struct caller caller;
static struct engine_result last[2]; /* [0] resume, [1] pause */
static char reason[528];             /* a result's message with "resume: " before it */
static double failed_ms;             /* clock_ms(), if that is of a failure; else 0 */
static bool of_resume;               /* that is the failure of a resume */
static struct hold_report report;    /* the last one of the operation under way */
static bool reported;
static bool context_out;  /* the lease was told so, and not yet that it is back */
static bool gave_context; /* a yield has taken it */
static bool rested;       /* the last probe found the job with nothing to do */
static bool restored;     /* from a process image, and not told yet where its snapshot is now */
static size_t moved;      /* bytes that its lease was told of, by the operation under way */
static double retry_ms;   /* clock_ms() */
static bool starved;      /* the last operation had no thread, which has been said */

/* Why the last yield could not stop the process alone; empty: it could. */
static char bound[PROTOCOL_MESSAGE];

/* clock_ms(): the end of the user's resume, if the job waits for its turn then; INFINITY: none. */
static double expires_ms;

static bool is_change(enum operation op)
{
	return op == OP_PAUSE || op == OP_RESUME;
}

enum job_state job_state(void)
{
	const struct engine_progress *progress = operation_progress();
	enum operation op = control_operation(&state);

	if (op == OP_PAUSE)
		return __atomic_load_n(&progress->settled, __ATOMIC_RELAXED) ? STATE_PAUSED
									     : STATE_PAUSING;
	/* All is out already of a job that is paused: the yield only takes its lease. */
	if ((op == OP_YIELD && state.rest != STATE_PAUSED) ||
	    (op == OP_NONE && state.hold == HOLD_OPEN))
		return STATE_PAUSING;
	if (op == OP_RESUME || op == OP_FILL)
		return __atomic_load_n(&progress->waiting, __ATOMIC_RELAXED) ? STATE_WAITING
									     : STATE_RESUMING;
	return state.rest;
}

static void set_reason(const char *what, const char *message, bool failed)
{
	snprintf(reason, sizeof(reason), "%s%s%s", what, *what ? ": " : "", message);
	failed_ms = failed ? clock_ms() : 0;
	of_resume = false;
}

struct answers_facts job_facts(void)
{
	return (struct answers_facts){.state = job_state(),
				      .pause = &last[1],
				      .resume = &last[0],
				      .reason = reason,
				      .failed_for_ms = failed_ms ? clock_ms() - failed_ms : 0};
}

static void finish(enum server_wait whom, const struct engine_result *result)
{
	const struct answers_facts f = job_facts();

	answers_finish(whom, result, &f);
}

/* The result of an operation that has no figures of a pause or a resume. */
static void finish_note(enum server_wait whom, const struct engine_result *result)
{
	struct answers_facts f = job_facts();
	struct engine_result bare = {0};

	snprintf(bare.note, sizeof(bare.note), "%s", result->note);
	f.pause = &bare;
	answers_finish(whom, result, &f);
}

static void finish_with(enum server_wait whom, enum end_code code, const char *message)
{
	struct engine_result result = {.code = code};

	snprintf(result.message, sizeof(result.message), "%.511s", message);
	finish(whom, &result);
}

/* Nobody may overwrite the snapshot that alone has a paused job's memory. */
static void lock_snapshot(void)
{
	struct engine_result result = {.code = END_FAILED};
	struct snapshot_error error;

	if (!engine_lock_place(&error))
		return;
	snprintf(result.message, sizeof(result.message), "%.255s: %.250s", engine_snapshot_dir(),
		 error.text);
	set_reason("snapshot", result.message, true);
	pr_warn("%s", reason);
	finish(WAITS_DONE, &result);
}

static void finish_fill(enum server_wait whom)
{
	answers_filled();
	finish(whom, operation_result());
}

static void give_answer(const struct control_action *action)
{
	if (action->code)
		finish_with(action->whom, action->code, action->reason);
	else if (action->answer == ANSWER_RESULT)
		finish(action->whom, operation_result());
	else if (action->answer == ANSWER_NOTE)
		finish_note(action->whom, operation_result());
	else if (action->answer == ANSWER_FILL)
		finish_fill(action->whom);
	else if (action->answer == ANSWER_TURN)
		answers_turn();
	else if (action->answer == ANSWER_WRITTEN)
		finish(action->whom, operation_written());
	else
		finish(action->whom, NULL);
}

static const char *name_of(enum operation op, bool for_snapshot)
{
	if (op == OP_RESUME)
		return "resume";
	if (op == OP_YIELD)
		return "yield";
	if (op == OP_FILL)
		return "fill";
	return for_snapshot ? "snapshot" : "pause";
}

static void start(const struct control_action *action)
{
	struct pact *pact = action->options.joint ? joint_next() : NULL;
	int error = operation_start(action->op, &action->options, &want_plan, &last[1], pact);
	struct control_event event = {.kind = EV_NO_START, .exiting = error == -ECANCELED};
	char why[128];

	if (!error) {
		if (pact)
			joint_began();
		starved = reported = false;
		moved = 0;
		if (is_change(action->op) || control_is_part(action->op))
			set_reason("", "", false);
		return;
	}
	snprintf(why, sizeof(why), "%s%s", event.exiting ? "" : "no thread can be started: ",
		 event.exiting ? "the process exits" : error_text(-error));
	if (!starved && !event.exiting) {
		pr_err("an operation cannot begin: %s; if a signal asked for it, it is tried again",
		       why);
		history_failed(name_of(action->op, false), END_FAILED, why);
	}
	starved = true;
	retry_ms = clock_ms() + JOB_RETRY_MS;
	event.reason = why;
	job_take(&event);
}

/* There is no operation that could. @reached: the number of the targets that it was to reach. */
static void report_rest(unsigned int reached)
{
	report = (struct hold_report){.drained = true, .reached = reached};
	answers_report(&report, OP_PAUSE);
}

static void perform(const struct control_action *action)
{
	static const struct hold_order commit = {.commit = true};

	switch (action->kind) {
	case ACT_START:
		start(action);
		break;
	case ACT_CANCEL:
		operation_cancel();
		break;
	case ACT_COMMIT:
		hold_give_order(operation_hold(), &commit);
		break;
	case ACT_ROOM:
		operation_room(action->options.bytes);
		break;
	case ACT_REPORT:
		if (reported)
			answers_report(&report, control_operation(&state));
		break;
	case ACT_REST:
		report_rest(0);
		break;
	case ACT_ANSWER:
		give_answer(action);
		break;
	case ACT_LOCK:
		lock_snapshot();
	}
}

static void perform_all(const struct control_actions *actions)
{
	for (size_t i = 0; i < actions->n; i++)
		perform(&actions->list[i]);
}

/* The longest of those that are asked for. */
static void set_expiry(const struct control_event *event)
{
	double ms = event->options.timeout_ms;
	double end = ms ? clock_ms() + ms : INFINITY;

	if (event->kind == EV_RESUME && (!state.called || end > expires_ms))
		expires_ms = end;
}

int job_take(const struct control_event *event)
{
	struct control_actions actions = {0};
	int ret;

	set_expiry(event);
	ret = control_take(&state, event, &actions);

	restored = restored && control_wants_paused(&state);
	quota_imaged(control_awaits_done(&state));
	perform_all(&actions);
	return ret;
}

void job_give_order(const struct hold_order *order)
{
	if (state.hold != HOLD_OPEN)
		return;
	if (control_operation(&state) == OP_NONE)
		report_rest(order->reach ? order->reach : report.reached);
	else
		hold_give_order(operation_hold(), order);
}

void job_settle(void)
{
	struct control_actions actions = {0};

	control_decide(&state, engine_is_untidy(), engine_keeps_context(), &actions);
	perform_all(&actions);
}

/* @alone: nobody else is told. */
static void note_failure(const char *what, const char *message, bool alone)
{
	set_reason(what, message, true);
	if (alone)
		pr_err("%s", reason);
	else
		pr_warn("%s", reason);
}

/* Tell the lease how much a yield or a fill has moved. */
static void send_moved(void)
{
	enum operation op = control_operation(&state);
	size_t now = __atomic_load_n(&operation_progress()->moved, __ATOMIC_RELAXED);

	if (!control_is_part(op) || now == moved)
		return;
	moved = now;
	answers_moved(op == OP_YIELD ? "freed" : "mapped", now);
}

/* Something that failed, and was not just cancelled by the lease, or by a resume. */
static bool is_failure(enum operation op, enum end_code code)
{
	if (control_is_part(op) || op == OP_RELEASE)
		return code != END_OK && code != END_BUSY;
	return is_change(op) && code != END_OK;
}

/* Whether the context went with a yield, or has come back since, whatever becomes of the memory. */
static void tell_context(enum operation op, const struct engine_result *result)
{
	/* The driver may have locked the process, and failed then. */
	bool out = engine_is_released() && !*result->note;

	if (op == OP_YIELD && state.yield.context && result->code == END_OK) {
		gave_context |= out;
		context_out = out;
		answers_context(out ? "out" : "stays", out ? "" : result->note);
	} else if (context_out && !engine_is_released()) {
		context_out = false;
		answers_context("restored", "");
	}
}

/* Before those who wait are answered. @what: the operation's name. */
static void tell_history(enum operation op, bool ok, const char *what)
{
	const struct engine_result *result = operation_result(), *written = operation_written();
	bool writes = state.snapshot == SNAPSHOT_WRITTEN && ok;

	if (ok)
		history_state(op == OP_PAUSE || control_wants_paused(&state));
	else if (!control_is_part(op))
		history_failed(what, result->code, result->message);
	if (writes && written->code != END_OK)
		history_failed("snapshot", written->code, written->message);
	else if (writes && !state.plan_image)
		history_saved(operation_plan()->path);
}

void job_end_operation(void (*say_what_is_left)(void))
{
	const struct engine_result *result = operation_result(), *written = operation_written();
	enum operation op = control_operation(&state);
	bool pause = op == OP_PAUSE, writes = state.snapshot == SNAPSHOT_WRITTEN;
	bool ok = !is_failure(op, result->code);
	const char *what = name_of(op, writes && state.plan_pause);
	struct control_event event = {.kind = EV_ENDED,
				      .code = result->code,
				      .written = written->code,
				      .paused = engine_is_paused(),
				      .partly = engine_is_partly_out(),
				      .room = operation_seen_room(),
				      .kept = operation_kept(),
				      .reason = reason};

	if (op == OP_YIELD)
		format_copy(bound, sizeof(bound), result->bound ? result->message : "");
	rested = op == OP_PROBE && result->code == END_OK;
	send_moved();
	say_what_is_left();
	if (op == OP_YIELD && engine_is_paused())
		answers_moved("mapped", operation_mapped());
	if (op == OP_YIELD && result->code == END_OK)
		answers_yielded(result);
	if (op == OP_YIELD && result->lacks_host)
		answers_short(result->group);
	tell_context(op, result);
	tell_history(op, ok, what);
	if (op == OP_RELEASE && of_resume) {
		if (!ok)
			pr_warn("%s: %s", what, result->message);
	} else if (!ok) {
		note_failure(what, result->message,
			     state.by_signal && !state.stopping && result->code == END_UNSUPPORTED);
		of_resume = op == OP_RESUME;
	} else if (is_change(op)) {
		last[pause] = *result;
		set_reason("", result->note, false);
	} else if (op == OP_FILL && !engine_is_paused()) {
		last[0] = *result;
		set_reason("", result->note, false);
	} else if (op == OP_RELEASE) {
		set_reason("", "", false);
	}
	joint_ended();
	/* Nobody waits for an answer if a signal asked for the snapshot. */
	if (writes && ok && written->code != END_OK)
		note_failure("snapshot", written->message, false);
	job_take(&event);
}

void job_probe(void)
{
	rested = false;
	job_take(&(struct control_event){.kind = EV_PROBE});
	job_settle();
}

bool job_refused_yield(char why[PROTOCOL_MESSAGE])
{
	format_copy(why, PROTOCOL_MESSAGE, bound);
	*bound = '\0';
	return *why;
}

bool job_gave_context(void)
{
	return gave_context;
}

bool job_came_to_rest(void)
{
	return rested;
}

bool job_awaits_caller(void)
{
	return control_awaits_done(&state) || control_is_lent(&state);
}

void job_look_for_caller(void)
{
	struct control_event event = {.kind = EV_DONE, .matches = true};

	if (!job_awaits_caller() || !caller_is_gone(&caller))
		return;
	if (is_change(control_operation(&state))) {
		joint_beat(JOINT_LOAN);
		return;
	}
	if (!caller_is_ours(&caller)) {
		restored = true;
		job_take(&(struct control_event){.kind = EV_MOVED});
		return;
	}
	pr_warn("process %d, which was to finish a snapshot, has ended: the job %s", caller.pid,
		state.wishes[WISHER_USER] ? "stays paused" : "runs on");
	event.options.joint = joint_use(JOINT_LOAN);
	job_take(&event);
}

static bool is_lent_to(const struct caller *asks)
{
	return control_is_lent(&state) && caller_is_same(asks, &caller);
}

bool job_is_given_back_by(const struct caller *asks)
{
	return is_lent_to(asks) ||
	       (control_is_lent(&state) && !asks->start && asks->pid == caller.pid);
}

static bool is_lent_to_another(const struct caller *asks)
{
	return control_is_lent(&state) && !is_lent_to(asks);
}

int job_lend(const struct control_event *event, const struct caller *asks, int pact)
{
	int error;

	if (state.snapshot != SNAPSHOT_NONE || is_lent_to_another(asks))
		return -EBUSY;
	error = pact < 0 ? 0 : joint_keep(JOINT_LOAN, pact);
	if (error)
		return error;
	caller = *asks;
	return job_take(event);
}

void job_moved(void)
{
	restored = false;
	job_take(&(struct control_event){.kind = EV_MOVED});
}

bool job_awaits_move(void)
{
	return restored;
}

int job_want_snapshot(const struct snapshot_plan *plan, double timeout_ms, bool own_limit,
		      const struct caller *asks)
{
	const struct control_event event = {
		.kind = EV_SNAPSHOT,
		.options = {.timeout_ms = timeout_ms, .own_limit = own_limit},
		.by_signal = !asks,
		.pause = plan->pause,
		.image = plan->image,
		.in_snapshot = engine_snapshot_dir() != NULL};
	int ret = asks && is_lent_to_another(asks) ? -EBUSY : job_take(&event);

	if (ret)
		return ret;
	want_plan = *plan;
	if (asks)
		caller = *asks;
	return 0;
}

void job_send_news(void)
{
	enum operation op = control_operation(&state);
	struct hold *hold = operation_hold();

	if ((is_change(op) || control_is_part(op)) && hold && hold_take_report(hold, &report)) {
		reported = true;
		answers_report(&report, op);
	}
	send_moved();
	if (is_change(op) || control_is_part(op) || op == OP_SNAPSHOT || op == OP_RELEASE ||
	    state.hold == HOLD_OPEN)
		answers_progress(operation_progress());
	else if (state.activity == ACTIVITY_IDLE && state.rest == STATE_WAITING)
		answers_waiting();
}

void job_retry(void)
{
	/* Without a turn; the engine knows the time of a resume itself. */
	if (state.called && clock_ms() >= expires_ms && job_state() == STATE_WAITING &&
	    control_operation(&state) != OP_RESUME)
		job_take(&(struct control_event){.kind = EV_EXPIRED});
	if (clock_ms() >= retry_ms)
		job_take(&(struct control_event){.kind = EV_RETRY});
}

const struct control_state *job_now(void)
{
	return &state;
}
