/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/clients.h"
#include "checkpoint/control/answers.h"
#include "checkpoint/control/caller.h"
#include "checkpoint/control/history.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/joint.h"
#include "checkpoint/control/operation.h"
#include "checkpoint/control/request.h"
#include "checkpoint/control/server.h"
#include "checkpoint/control/turn/turn.h"
#include "checkpoint/control/waits.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/ledger/ranks.h"
#include "common/system/ownfd.h"
#include "common/text.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#define LOG_PREFIX "control: "
#include "common/log.h"

#define NO_DESCRIPTOR  "the program has no free descriptor (RLIMIT_NOFILE)"
#define NO_PACT        "the other processes cannot be reached: %s"
#define OTHER_SNAPSHOT "another snapshot is under way, or being read back"

/* False: one came with its lines, and no number was free for it. That is answered. */
static bool has_all_descriptors(const struct client *c)
{
	if (c->token_lost)
		server_answer(c, END_FAILED, NO_DESCRIPTOR);
	return !c->token_lost;
}

/* Join the pact that came with the request, if one did. False: it is refused, and answered. */
static bool join_pact(struct client *c, bool *came, struct control_event *event)
{
	int error;

	if (!has_all_descriptors(c))
		return false;
	error = joint_take(server_token(c));
	*came = error != -EINVAL;
	event->options.joint = !error;
	if (!error || error == -EINVAL || error == -ESTALE)
		return true;
	server_answer(c, END_FAILED, NO_PACT, error_text(-error));
	return false;
}

static void take_change(struct client *c, const struct request *r)
{
	bool pause = r->id == REQUEST_PAUSE || r->id == REQUEST_HOLD, pact = false;
	struct control_event event = {.kind = pause ? EV_PAUSE : EV_RESUME,
				      .options = {.timeout_ms = r->timeout_ms,
						  .own_limit = r->own_limit,
						  .release = r->release},
				      .lent = r->lent};
	struct caller asks;
	int error;

	if (pause && r->hold && job_state() == STATE_PAUSING &&
	    control_operation(job_now()) != OP_NONE) {
		if (control_is_part(control_operation(job_now())))
			server_answer(c, END_AGAIN, "it comes to rest for a turn");
		else
			server_answer(c, END_BUSY, "another pause is under way");
		return;
	}
	if (r->hold && !(pause ? has_all_descriptors(c) : join_pact(c, &pact, &event)))
		return;
	/* It follows a later pact. If that resume is under way, this request waits for it. */
	if (pact && !event.options.joint && control_wants_paused(job_now())) {
		server_answer(c, END_BUSY, "superseded by a later request");
		return;
	}
	history_asked(pause ? JOURNAL_PAUSE : JOURNAL_RESUME, ownfd_get(&c->own), NULL, NULL);
	c->waits = pause ? WAITS_PAUSED : WAITS_RUNNING;
	c->follows = pact;
	c->holds = r->hold && !c->follows;
	event.client = c->holds ? c->id : 0;
	if (!r->lent) {
		job_take(&event);
		return;
	}
	caller_find(ownfd_get(&c->own), &asks);
	error = job_lend(&event, &asks, ownfd_get(&c->pact));
	ownfd_close(&c->pact);
	if (!error)
		operation_offer(&c->memory);
	if (error == -EBUSY)
		server_answer(c, END_BUSY, OTHER_SNAPSHOT);
	else if (error)
		server_answer(c, END_FAILED, NO_PACT, error_text(-error));
}

static bool has_lease(const struct client *c)
{
	return c->waits == WAITS_LEASE;
}

static struct client *find_lease(void)
{
	struct client *c = server_next(NULL);

	while (c && !has_lease(c))
		c = server_next(c);
	return c;
}

static void take_snapshot(struct client *c, const struct request *r)
{
	struct client *lease = find_lease();
	struct caller asks;

	/* A process image cannot have connections to others. */
	if (lease && r->plan.image) {
		server_answer(lease, END_BUSY, "a process image of the job is to be made");
		server_end(lease);
	}
	history_asked(JOURNAL_SNAPSHOT, ownfd_get(&c->own), NULL, r->plan.path);
	caller_find(ownfd_get(&c->own), &asks);
	if (job_want_snapshot(&r->plan, r->timeout_ms, r->own_limit, &asks)) {
		server_answer(c, END_BUSY, OTHER_SNAPSHOT);
		return;
	}
	c->waits = WAITS_WRITTEN;
	operation_offer(&c->memory);
}

/* Whether the snapshot at @path is that of @c. The path of a job that is lent is that of an earlier one. */
static bool is_snapshot_of(const struct client *c, const char *path)
{
	struct caller asks;

	caller_find(ownfd_get(&c->own), &asks);
	return control_is_lent(job_now()) ? job_is_given_back_by(&asks)
					  : !strcmp(path, operation_plan()->path);
}

/*
 * False: that is not possible, or the engine's thread has the pool (it tidies up), so that the resume reads the snapshot;
 * or the job stays paused, and has its memory there alone.
 */
static bool take_memory_back(const struct client *c)
{
	int fd = ownfd_get(&c->memory), error;

	if (fd < 0 || control_operation(job_now()) != OP_NONE ||
	    control_wants_paused_anyway(job_now()))
		return false;
	error = engine_take_back(fd);
	if (error)
		pr_debug("the resume reads the snapshot: %s", error_text(-error));
	return !error;
}

static void take_recall(struct client *c, const char *path)
{
	bool back = is_snapshot_of(c, path) && take_memory_back(c);

	ownfd_close(&c->memory);
	server_answer(c, back ? END_OK : END_BUSY, back ? NULL : "the job needs the snapshot");
}

static void take_done(struct client *c, const char *path)
{
	struct control_event event = {.kind = EV_DONE};
	bool pact;

	if (!join_pact(c, &pact, &event))
		return;
	event.matches = is_snapshot_of(c, path);
	c->waits = WAITS_DONE;
	if (event.matches)
		take_memory_back(c);
	/* A resume that reads the snapshot needs the room. */
	ownfd_close(&c->memory);
	job_take(&event);
}

/* At once: the operation that reads the memory back must know where it is. */
static void take_move(struct client *c, const struct request *r)
{
	struct snapshot_error error;
	int ret = control_operation(job_now()) == OP_NONE
			  ? engine_moved(r->path, r->pairs, r->npairs, server_token(c), &error)
			  : snapshot_fail(&error, -EBUSY, "an operation is under way");

	/* A directory that is busy may be the right one. */
	if (ret) {
		server_answer(c, ret == -EBUSY || ret == -EAGAIN ? END_FAILED : END_INVALID,
			      "%s: %s", r->path, error.text);
		return;
	}
	job_moved();
	server_answer(c, END_OK, NULL);
}

/* The first yield of a client takes the lease, which stays with the client until it disconnects. */
static void take_yield(struct client *c, const struct request *r)
{
	const struct control_event event = {
		.kind = EV_YIELD,
		.options = {.timeout_ms = r->timeout_ms,
			    .own_limit = r->own_limit || turn_is_daemon(c),
			    .release = RELEASE_MEMORY,
			    .hold = r->hold,
			    .alone = !r->hold,
			    .bytes = r->bytes,
			    .context = r->context}};

	if (!has_lease(c) && find_lease()) {
		server_answer(c, END_BUSY, "another client has the lease");
		return;
	}
	if (job_now()->lease == LEASE_ASKED || control_operation(job_now()) == OP_YIELD) {
		server_answer(c, END_BUSY, "another yield is under way");
		return;
	}
	c->waits = WAITS_LEASE;
	c->holds = r->hold;
	job_take(&event);
}

static void take_room(struct client *c, const struct request *r)
{
	if (!has_lease(c)) {
		server_answer(c, END_BUSY, "no yield has taken the lease");
		return;
	}
	if (job_now()->lease == LEASE_OURS) {
		server_say(c, "filled");
		server_answer(c, END_BUSY, "the job has all of its memory, or takes it");
		return;
	}
	c->holds = r->hold;
	job_take(&(struct control_event){.kind = EV_ROOM,
					 .options = {.bytes = r->bytes, .hold = r->hold}});
}

/* The descriptor that came with the line, as *@kept until the request that follows. */
static void keep_token(struct client *c, struct ownfd *kept)
{
	ownfd_close(kept);
	*kept = c->token;
	ownfd_set(&c->token, -1);
}

/* Until the job is lent to it, which may be refused. */
static void keep_for_loan(struct client *c)
{
	if (!has_all_descriptors(c))
		return;
	if (server_token(c) < 0)
		server_answer(c, END_INVALID, "expected a descriptor with pact, found none");
	else
		keep_token(c, &c->pact);
}

/* Without it the resume reads the snapshot. */
static void keep_memory(struct client *c)
{
	c->token_lost = false;
	if (server_token(c) >= 0)
		keep_token(c, &c->memory);
}

/* For the end of the client. */
static void keep_pact(struct client *c)
{
	int error;

	if (!has_lease(c)) {
		keep_for_loan(c);
		return;
	}
	error = joint_keep(JOINT_LEASE, server_token(c));
	ownfd_close(&c->token);
	if (error)
		pr_debug("no pact: %s", error_text(-error));
}

static void refuse(struct client *c, const struct request *r, const char *expected)
{
	server_answer(c, END_INVALID, "expected %s, found %s", expected, r->text);
	server_end(c);
}

static void take_request(struct client *c, const struct request *r)
{
	if (has_lease(c) && r->id < REQUEST_YIELD) {
		refuse(c, r, "yield or room, by the client that has the lease");
		return;
	}
	switch (r->id) {
	case REQUEST_STATUS:
		answers_status(c, waits_facts());
		break;
	case REQUEST_PAUSE:
	case REQUEST_HOLD:
	case REQUEST_RESUME:
	case REQUEST_REGAIN:
		take_change(c, r);
		break;
	case REQUEST_TRIM:
		c->waits = WAITS_TRIMMED;
		job_take(&(struct control_event){.kind = EV_TRIM});
		break;
	case REQUEST_SNAPSHOT:
		take_snapshot(c, r);
		break;
	case REQUEST_RECALL:
		take_recall(c, r->path);
		break;
	case REQUEST_DONE:
		take_done(c, r->path);
		break;
	case REQUEST_MOVED:
		take_move(c, r);
		break;
	case REQUEST_YIELD:
		take_yield(c, r);
		break;
	case REQUEST_ROOM:
		take_room(c, r);
		break;
	case ORDER_PACT:
		keep_pact(c);
		break;
	case REQUEST_MEMORY:
		keep_memory(c);
		break;
	default:
		refuse(c, r, r->expected);
	}
}

/* True if the operation under way is the one that @c holds. */
static bool holds_this(const struct client *c)
{
	return c->holds && has_lease(c) == control_is_part(control_operation(job_now()));
}

/* A line of a client that holds the job, or did so. Of one that is not valid, the client is let go. */
static void take_order(struct client *c, const struct request *r)
{
	int id = request_is_order(r) ? r->id : TO_JOB;
	bool decides = id == ORDER_COMMIT || id == ORDER_ABORT;

	if (id == ORDER_PACT) {
		keep_pact(c);
		return;
	}
	if (id != TO_JOB && !holds_this(c) && (has_lease(c) || !decides))
		return;
	switch (id) {
	case ORDER_STEP:
	case ORDER_REACH:
		job_give_order(&r->order);
		return;
	case ORDER_BESIDE:
		ranks_share_gpu((pid_t)r->line.number[0]);
		return;
	default:
		job_take(&(struct control_event){.kind = id == ORDER_COMMIT ? EV_COMMIT : EV_ABORT,
						 .client = c->id,
						 .by_lease = has_lease(c)});
	}
	if (id == TO_JOB)
		refuse(c, r, REQUEST_ORDERS);
}

/* True if the token of those who hold together (protocol.h) says that they go on. */
static bool is_agreed(const struct client *c)
{
	struct pollfd token = {.fd = server_token(c), .events = POLLIN};

	if (c->token.kind == S_IFREG)
		return false; /* a pact that this version does not know: it is always readable */
	return token.fd >= 0 && poll(&token, 1, 0) > 0 && token.revents & POLLIN;
}

/*
 * All commit, whatever becomes of the client, which may be stopped before it says so. Lines that it has sent
 * before have been read at the look after the one that has seen the token.
 */
static void look_at_token(struct client *c)
{
	if (!c->holds || has_lease(c) || c->agreed == AGREED)
		return;
	if (c->agreed == AGREED_SEEN || (c->gone && is_agreed(c))) {
		c->agreed = AGREED;
		job_take(&(struct control_event){.kind = EV_COMMIT, .client = c->id});
	} else if (is_agreed(c)) {
		c->agreed = AGREED_SEEN;
	}
}

/* @c disconnected. Its request goes on, unless the client had to see it through. */
static void leave(struct client *c)
{
	if (c->waits == WAITS_WRITTEN)
		job_take(&(struct control_event){.kind = EV_CALL_OFF});
	else if (c->holds && !has_lease(c))
		job_take(&(struct control_event){.kind = EV_HOLDER_GONE, .client = c->id});
	server_end(c);
}

static void take_line(struct client *c, const char *text)
{
	static struct request r;

	request_parse(text, &r);
	/* A client that has the lease may send an order when its operation has just ended. */
	if (has_lease(c) ? request_is_order(&r) : c->holds)
		take_order(c, &r);
	else if (!turn_is_daemon(c) || !turn_take(&r))
		take_request(c, &r);
}

/* However its client went. One that runs tells the others that they need not wait for it. */
static void give_lease_back(void)
{
	struct control_event event = {.kind = EV_LEASE_BACK,
				      .options.joint = joint_use(JOINT_LEASE),
				      .by_lease = turn_let_go()};

	if (job_now()->lease != LEASE_OURS)
		job_take(&event);
}

void clients_handle(void)
{
	const char *line;

	for (struct client *c = server_next(NULL); c; c = server_next(c)) {
		while ((line = server_line(c)))
			take_line(c, line);
		look_at_token(c);
		if (c->gone && !c->ended)
			leave(c);
	}
	if (!find_lease())
		give_lease_back();
}

bool clients_wait(void)
{
	bool part = control_is_part(control_operation(job_now()));

	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits != WAITS_NOT && (!has_lease(c) || part))
			return true;
	return false;
}
