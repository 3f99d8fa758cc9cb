/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/members.h"
#include "common/clock.h"
#include "common/reused.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/text.h"
#include "tools/daemon/shown.h"
#include "tools/daemon/events.h"
#include "tools/daemon/gpus.h"
#include "tools/daemon/parties.h"
#include "tools/daemon/rescue.h"
#include "tools/daemon/rules.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "members: "
#include "common/log.h"

#define WAIT_AGE_MS 250  /* of a sample, while somebody waits */
#define CALM_MS     500  /* without news of the memory of a member whose memory moves */
#define FRESH_MS    20   /* of one that a decision is made by */
#define TAKES       3    /* times CONF_SILENCE: see turns_settings */
#define SHOWN_MS    1000 /* of one that bounds what members say */
#define ONLY_NEW_MS 1e15 /* GPUs that were never looked at */

static struct parties *parties;
static struct member members[CONNECTIONS_MAX];

static struct event_subject subject_of(const struct member *m)
{
	return (struct event_subject){.uid = m->connection->uid,
				      .pid = m->connection->pid,
				      .id = m->job,
				      .name = m->name};
}

#define note(kind, m, ...)                                           \
	do {                                                         \
		const struct event_subject subject_ = subject_of(m); \
                                                                     \
		events_add(kind, &subject_, __VA_ARGS__);            \
	} while (0)

/* It may have another part of its memory on the GPUs than it has said. */
static bool is_unsure(const struct member *m, double now)
{
	if (m->silent)
		return false;
	/* It says so at the end of a pause, and in full at that of a yield. */
	if ((m->state == STATE_PAUSING && !m->drains &&
	     now - m->state_ms < rules_value(CONF_SILENCE)) ||
	    (m->hand == HAND_OUT && m->freed))
		return true;
	return m->moved && m->moved_ms > now - CALM_MS;
}

/* What it has on @gpu, as far as what it says counts. */
static size_t counted_on(const struct member *m, int gpu)
{
	const struct member_need *n = &m->need[gpu];

	return n->mapped < n->shown ? n->mapped : n->shown;
}

/* What all members have on @gpu, likewise. */
static size_t told_on(int gpu)
{
	size_t sum = 0;

	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		sum += m->need[gpu].told ? counted_on(m, gpu) : 0;
	return sum;
}

/* The same; -1 while memory moves there, or has moved since they said so. */
static long mapped_on(int gpu)
{
	double now = clock_ms();

	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (m->need[gpu].told && is_unsure(m, now))
			return -1;
	return (long)told_on(gpu);
}

static void set_shown(struct member *m, int gpu, size_t bytes, double now)
{
	m->need[gpu].shown = bytes;
	parties_shown(parties, m->id, gpu, bytes, now);
}

/*
 * Among users who need not trust each other, no member keeps memory from others that NVML does not show: what it
 * says beyond that counts as nothing.
 */
static void take_shown(int gpu, const struct sample *sample, double now)
{
	static struct shown shown;

	if (!connections_are_of_everybody())
		return;
	shown_begin(&shown, sample);
	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++)
		if (m->id)
			set_shown(m, gpu,
				  shown_bound(&shown, m->connection->pid, m->need[gpu].mapped),
				  now);
}

/* What each of them has on @gpu beyond its memory. Of one that is not listed by its PID it is not known. */
static void take_contexts(int gpu, const struct sample *sample, double now)
{
	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++) {
		size_t bytes = 0;

		if (!m->id || is_unsure(m, now))
			continue;
		for (int i = 0; i < sample->nholders && m->connection->pid > 0; i++)
			if (sample->holders[i].pid == m->connection->pid)
				bytes = size_less(sample->holders[i].bytes, m->need[gpu].mapped);
		m->need[gpu].context = bytes;
		parties_context(parties, m->id, gpu, bytes, now);
	}
}

static void take_sample(int gpu, const struct sample *sample, double now)
{
	take_shown(gpu, sample, now);
	take_contexts(gpu, sample, now);
}

/* Members may have come to have more since. */
static void forget_shown(int gpu, double now)
{
	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++)
		if (m->id && m->need[gpu].shown != TURNS_NO_LIMIT)
			set_shown(m, gpu, TURNS_NO_LIMIT, now);
}

static bool is_used(int gpu)
{
	for (const struct member *m = members; m < members + CONNECTIONS_MAX; m++)
		if (m->connection && m->need[gpu].told)
			return true;
	return false;
}

/*
 * Nobody takes turns on a GPU that NVML does not know. So any user can tell of one, but not keep others
 * out.
 */
static void end_users(int gpu)
{
	char why[80 + NVML_UUID_SIZE];

	snprintf(why, sizeof(why), "NVML does not know %s, and there are too many GPUs",
		 gpus_get(gpu)->uuid);
	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++) {
		if (!m->connection || !m->need[gpu].told)
			continue;
		if (m->id)
			note("dropped", m, "%s", why);
		connection_answer(m->connection, END_UNSUPPORTED, "%s", why);
		/* At once, as its memory must not count on the GPU that comes. */
		members_leave(m->connection);
	}
}

int members_init(void)
{
	const struct gpus_users users = {
		.shown = take_sample, .mapped = mapped_on, .used = is_used, .end = end_users};

	parties = parties_new(&(struct turns_settings){0});
	if (!parties)
		return -ENOMEM;
	gpus_init(&users, clock_ms());
	return 0;
}

const struct member *members_next(const struct member *previous)
{
	for (int i = previous ? previous - members + 1 : 0; i < CONNECTIONS_MAX; i++)
		if (members[i].id)
			return &members[i];
	return NULL;
}

static struct member *find_id(uint32_t id)
{
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		if (members[i].id == id)
			return &members[i];
	return NULL;
}

static bool begin(struct connection *connection, const struct line *line)
{
	struct member *m = members;

	if (line->id != MEMBER_TURNS)
		return false;
	if (line->number[0] != PROTOCOL_TURNS) {
		pr_warn("process %d speaks version %lu, not %d", connection->pid, line->number[0],
			PROTOCOL_TURNS);
		connection_answer(connection, END_INVALID,
				  "this daemon speaks version %d, the job %lu", PROTOCOL_TURNS,
				  line->number[0]);
		return true;
	}
	if (!connection_may_be_job(connection)) {
		connection_answer(connection, END_BUSY,
				  "the user has as many jobs as one may have here");
		return true;
	}
	/* There are as many as connections. */
	while (m->connection)
		m++;
	reused_begins(m->job, m + 1);
	*m = (struct member){.connection = connection, .weight = 1, .context_after = -1};
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		m->need[gpu].shown = TURNS_NO_LIMIT;
	connection->member = m;
	return true;
}

/*
 * A member that was not running when it joined, or that its user has resumed while others of its job
 * run, waits for memory by itself: its lease is taken as if its user had paused it, so that it waits for
 * its turn. A job is pausing when it yields, too.
 */
static void tell_paused(struct member *m, double now)
{
	m->waits_alone &= m->state != STATE_RUNNING;
	if (m->state != STATE_PAUSING)
		parties_paused(parties, m->id, m->state == STATE_PAUSED,
			       m->waits_alone && m->state != STATE_PAUSED, now);
}

static bool take_state(struct member *m, const char *word, double now)
{
	int state = name_find(state_names, STATES, word);

	if (state < 0)
		return false;
	m->state = state;
	m->state_ms = now;
	m->drains = false;
	m->waits_alone |= state == STATE_WAITING && m->hand == HAND_NONE && m->id &&
			  !parties_is_out(parties, m->id);
	if (m->id)
		tell_paused(m, now);
	return true;
}

static bool take_need(struct member *m, const struct line *line, double now)
{
	int gpu = gpus_find(line->word[0]);
	struct member_need *n;

	if (!m->connection)
		return true; /* its GPU has made way, and it has ended */
	if (gpu < 0) {
		connection_answer(m->connection, END_UNSUPPORTED, "there are too many GPUs");
		return true;
	}
	n = &m->need[gpu];
	n->told = true;
	n->mapped = line->number[0];
	n->total = line->number[1];
	m->moved &= m->hand != HAND_NONE;
	if (m->id)
		parties_need(parties, m->id, gpu, line->number[0], line->number[1], now);
	return true;
}

static bool take_class(struct member *m, const char *word)
{
	m->class = !strcmp(word, "interactive") ? TURNS_INTERACTIVE : TURNS_BATCH;
	return m->class == TURNS_INTERACTIVE || !strcmp(word, "batch");
}

static bool take_weight(struct member *m, uint64_t weight)
{
	m->weight = (int)weight;
	return weight >= 1 && weight <= SETTING_WEIGHT_MAX;
}

/* In lines to commands it is one of several. */
static void take_word(char *buf, size_t size, const char *text)
{
	format_copy(buf, size, text);
	for (char *p = buf; *p; p++)
		if (*p == ' ')
			*p = '_';
}

static void join(struct member *m, double now)
{
	rules_limit(m);
	m->id = parties_join(parties, m->connection->uid, m->job, m->class, m->weight, now);
	if (!m->id) {
		connection_answer(m->connection, END_BUSY,
				  "the daemon has as many members as it can");
		return;
	}
	m->connection->kind = CONNECTION_MEMBER;
	parties_context_after(parties, m->id, m->context_after);
	if (m->restored)
		parties_restored(parties, m->id, m->released, now);
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		if (m->need[gpu].told)
			parties_need(parties, m->id, gpu, m->need[gpu].mapped, m->need[gpu].total,
				     now);
	m->waits_alone = m->state != STATE_RUNNING;
	tell_paused(m, now);
	gpus_sample_anew(now);
	/* A sample comes before the next decision. */
	for (int gpu = 0; gpu < TURNS_GPUS && connections_are_of_everybody(); gpu++)
		set_shown(m, gpu, 0, now);
	connection_say(m->connection, "welcome %d", parties_idle_limit(parties, m->id));
	note("joined", m, "%s", m->command);
}

/* The phase of an operation, and how far it is. */
static void take_progress(struct member *m, const char *phase)
{
	m->drains = !strcmp(phase, "start") || !strcmp(phase, "drain") || !strcmp(phase, "waiting");
}

/* What it needs for its context is that of others again. */
static void take_context_back(struct member *m, double now)
{
	for (int gpu = 0; gpus_get(gpu); gpu++) {
		gpus_context_back(gpu, m->need[gpu].out, now);
		m->need[gpu].out = 0;
	}
}

/* Of its introduction, or of a yield that was to take its context. False: it is malformed. */
static bool take_context(struct member *m, const char *text, double now)
{
	bool was_out = m->released;

	if (!strncmp(text, "stays ", 6)) {
		char cleaned[EVENT_TEXT];

		format_copy(cleaned, sizeof(cleaned), text + 6);
		note("kept", m, "its context, which others need: %s", cleaned);
		return true;
	}
	m->released = !strcmp(text, "out");
	m->restored = true;
	if (!m->released && strcmp(text, "restored") != 0)
		return false;
	if (m->id && m->released)
		note("released", m, "its context, too; it runs beside nobody from now on");
	else if (m->id && was_out)
		take_context_back(m, now);
	if (m->id)
		parties_restored(parties, m->id, m->released, now);
	return true;
}

/* A line that comes in the introduction, and later as well. False: it is malformed. */
static bool take_fact(struct member *m, const struct line *line, double now)
{
	switch (line->id) {
	case MEMBER_NEED:
		return take_need(m, line, now);
	case REPORT_CONTEXT:
		return take_context(m, line->text, now);
	case REPORT_STATE:
		return take_state(m, line->text, now);
	case REPORT_PROGRESS:
		take_progress(m, line->word[0]);
		return true;
	case REPORT_PID:
	case REPORT_NOTE:
	case REPORT_READY:
	case TO_DAEMON:
		return true;
	default:
		return false;
	}
}

/* A line of the introduction. False: it is malformed. */
static bool take_introduction(struct member *m, const struct line *line, double now)
{
	switch (line->id) {
	case REPORT_ID:
		take_word(m->job, sizeof(m->job), line->text);
		return true;
	case REPORT_NAME:
		take_word(m->name, sizeof(m->name), line->text);
		return true;
	case REPORT_COMMAND:
		format_copy(m->command, sizeof(m->command), line->text);
		return true;
	case MEMBER_CLASS:
		return take_class(m, line->text);
	case MEMBER_WEIGHT:
		return take_weight(m, line->number[0]);
	case MEMBER_CONTEXT_AFTER:
		m->context_after = (double)line->number[0] * 1000;
		return true;
	case MEMBER_JOINED:
		join(m, now);
		return true;
	default:
		return take_fact(m, line, now);
	}
}

static void take_grow(struct member *m, const struct line *line, double now)
{
	int gpu = gpus_find(line->word[0]);
	char bytes[FORMAT_SIZE];

	if (!m->connection)
		return; /* its GPU has made way, and it has ended */
	if (gpu < 0 || !rules_has_turns(line->word[0])) {
		connection_say(m->connection, "no %lu", line->number[0]);
		return;
	}
	m->need[gpu].told = true; /* it may have no memory there yet */
	note("grows", m, "an allocation of %s waits", format_bytes(bytes, line->number[1]));
	parties_grow(parties, m->id, line->number[0], gpu, line->number[1], now);
	if (line->id == MEMBER_PINNED)
		parties_pinned(parties, m->id, line->number[0], now);
	gpus_sample(FRESH_MS, now);
}

static enum turns_end end_of(enum end_code code)
{
	return code == END_OK        ? TURNS_OK
	       : code == END_TIMEOUT ? TURNS_TIMEOUT
	       : code == END_NOMEM   ? TURNS_NOMEM
				     : TURNS_FAILED;
}

static void note_end(const struct member *m, enum turns_end end, const struct line *line,
		     double now)
{
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], cleaned[EVENT_TEXT];

	format_duration(took, now - m->since_ms);
	format_copy(cleaned, sizeof(cleaned), line->text);
	if (end != TURNS_OK)
		note("failed", m, "%s after %s: %s %s", m->hand == HAND_OUT ? "a yield" : "a fill",
		     took, end_names[line->end], cleaned);
	else if (m->hand == HAND_OUT)
		note("gave", m, "%s in %s", format_bytes(bytes, m->freed), took);
	else
		note("runs", m, "it has its memory back after %s", took);
}

/* The end of a yield or a fill. Others concern nobody here: that of a fill may cross a yield. */
static void take_end(struct member *m, const struct line *line, double now)
{
	enum turns_end end = end_of(line->end);
	bool filled = m->filled;

	m->filled = false;
	if (m->hand == HAND_NONE || (m->hand == HAND_OUT && filled))
		return;
	/* It has its lease, and so all of its memory, or takes it. */
	if (filled && line->end == END_BUSY)
		end = TURNS_OK;
	note_end(m, end, line, now);
	m->hand = HAND_NONE;
	parties_ended(parties, m->id, end, now);
	/* It was continued before it could be told that it is to stop again. */
	if (m->idles && !m->rescued)
		parties_stops(parties, m->id, false, now);
	m->idles = false;
	m->waits_alone &= end != TURNS_OK;
	tell_paused(m, now);
}

/* That of a fill may cross a yield, which calls the fill off. False: it is malformed. */
static bool take_held(struct member *m, const struct line *line, double now)
{
	bool filled = m->filled;

	m->filled = false;
	return (m->hand == HAND_OUT && filled) || !parties_take(parties, m->id, line, now);
}

/* All that it has now. Of which GPU is known if it has one. */
static void set_mapped(struct member *m, size_t bytes)
{
	struct member_need *only = NULL;

	for (int gpu = 0; gpu < TURNS_GPUS; gpu++) {
		if (!m->need[gpu].total)
			continue;
		if (only)
			return;
		only = &m->need[gpu];
	}
	if (only)
		only->mapped = bytes;
}

static bool take_report(struct member *m, const struct line *line, double now)
{
	switch (line->id) {
	case MEMBER_WANT:
		parties_want(parties, m->id, now);
		return true;
	case MEMBER_IDLE:
	case MEMBER_BUSY:
		parties_idle(parties, m->id, line->id == MEMBER_IDLE, now);
		return true;
	case MEMBER_GROW:
	case MEMBER_PINNED:
		take_grow(m, line, now);
		return true;
	case MEMBER_ENDS:
		note("ends", m, "a signal ends it: it gets its turn before others");
		parties_ends(parties, m->id, now);
		return true;
	case MEMBER_STOPS:
	case MEMBER_GOES:
		m->stops = line->id == MEMBER_STOPS;
		m->rescued &= m->stops;
		parties_stops(parties, m->id, m->stops, now);
		return true;
	case MEMBER_PING:
		connection_say(m->connection, "pong");
		return true;
	case REPORT_FREED:
		m->freed = line->number[0];
		parties_freed(parties, m->id, line->number[0], now);
		return true;
	case REPORT_MAPPED:
		set_mapped(m, line->number[0]);
		parties_mapped(parties, m->id, line->number[0], now);
		return true;
	case REPORT_FILLED:
		m->filled = true;
		return true;
	case REPORT_END:
		take_end(m, line, now);
		return true;
	case REPORT_HELD:
		return take_held(m, line, now);
	case REPORT_COMMS:
		return !parties_take(parties, m->id, line, now);
	default:
		return take_fact(m, line, now);
	}
}

bool members_take(struct connection *connection, const struct line *line, double now)
{
	struct member *m = connection->member;

	if (!m)
		return begin(connection, line);
	if (m->silent) {
		connection_answer(connection, END_TIMEOUT, "no answer came in time");
		return true;
	}
	/* A ping asks, and answers nothing. */
	if (line->id != MEMBER_PING && now > m->heard_ms)
		m->heard_ms = now;
	/* A fill that waits for memory sends progress lines, too. */
	if (line->id != MEMBER_PING && line->id != REPORT_PROGRESS && now > m->moved_ms)
		m->moved_ms = now;
	return (m->id ? take_report : take_introduction)(m, line, now);
}

static size_t total_of(const struct member *m)
{
	size_t sum = 0;

	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		sum += m->need[gpu].total;
	return sum;
}

void members_leave(struct connection *connection)
{
	struct member *m = connection->member;
	double now = clock_ms();

	if (m->id) {
		note("left", m, "%s", m->command);
		parties_leave(parties, m->id, now);
		for (int gpu = 0; gpus_get(gpu); gpu++)
			gpus_leave(gpu, counted_on(m, gpu), told_on(gpu), now);
		gpus_sample(0, now);
	}
	*m = (struct member){0};
	reused_rests(m->job, m + 1);
	connection->member = NULL;
}

static void begin_hand(struct member *m, enum member_hand hand, double now)
{
	if (m->hand == HAND_NONE)
		m->since_ms = now;
	m->hand = hand;
	m->moved = true;
	m->heard_ms = m->moved_ms = now;
}

static void order_yield(struct member *m, const struct party_order *order, double now)
{
	char bytes[FORMAT_SIZE], timeout[16] = "";

	if (order->bytes == TURNS_ALL)
		note("gives", m, order->context ? "all, and its context" : "all");
	else
		note("gives", m, "up to %s", format_bytes(bytes, order->bytes));
	begin_hand(m, HAND_OUT, now);
	for (int gpu = 0; gpu < TURNS_GPUS && order->context; gpu++)
		m->need[gpu].out = m->need[gpu].context;
	m->freed = 0;
	m->looked_ms = 0;
	m->heard_ms += order->timeout_ms;
	if (order->timeout_ms)
		snprintf(timeout, sizeof(timeout), " %d", order->timeout_ms);
	connection_say(m->connection, "yield %lu%s%s", order->bytes, timeout,
		       order->hold      ? " hold"
		       : order->context ? " context"
					: "");
}

static void give_order(const struct party_order *order, void *arg)
{
	struct member *m = find_id(order->id);
	double now = *(double *)arg;

	/* It could only be told what is of no use to it before it joins again. */
	if (m->silent)
		return;
	switch (order->kind) {
	case PARTY_YIELD:
		order_yield(m, order, now);
		return;
	case PARTY_ROOM:
		begin_hand(m, HAND_IN, now);
		m->room = order->bytes;
		connection_say(m->connection, "room %lu%s", order->bytes,
			       order->hold ? " hold" : "");
		return;
	case PARTY_SAY:
		m->heard_ms = now > m->heard_ms ? now : m->heard_ms;
		connection_say(m->connection, "%s", order->text);
		return;
	case PARTY_TRY:
	case PARTY_NO:
		if (order->kind == PARTY_NO)
			note("refused", m, "there is no memory for the allocation");
		connection_say(m->connection, "%s %lu", order->kind == PARTY_TRY ? "try" : "no",
			       order->serial);
		return;
	case PARTY_WATCH:
		connection_say(m->connection, order->on ? "watch" : "unwatch");
		return;
	case PARTY_LIMIT:
		connection_say(m->connection, "idle %d", order->timeout_ms);
		return;
	case PARTY_LET_GO:
		note("dropped", m, "it cannot follow the other processes of its job");
		connection_answer(m->connection, END_TIMEOUT, "it could not rest with its job");
	}
}

static bool is_giving(void)
{
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (m->hand == HAND_OUT)
			return true;
	return false;
}

/* A member that takes memory waits for those who give, and for room for all that it has. */
static double silence_left(const struct member *m, double now)
{
	double left;

	if (m->hand == HAND_NONE ||
	    (m->hand == HAND_IN && (is_giving() || m->room < total_of(m))) ||
	    parties_waits(parties, m->id))
		return -1;
	left = m->heard_ms + rules_value(CONF_SILENCE) - now;
	return left > 0 ? left : 0;
}

/* What it may have on @gpu though it says nothing: of one that was given room, all of that. */
static size_t kept_on(const struct member *m, int gpu)
{
	const struct member_need *n = &m->need[gpu];
	size_t room = n->total;
	int gpus = 0;

	for (int i = 0; i < TURNS_GPUS; i++)
		gpus += m->need[i].total > 0;
	if (m->hand == HAND_OUT && gpus == 1)
		return n->mapped > m->freed ? n->mapped - m->freed : 0;
	if (m->hand == HAND_IN && gpus == 1 && m->room < room)
		room = m->room;
	return m->hand == HAND_IN && room > n->mapped ? room : n->mapped;
}

static void book_kept(struct member *m, double now)
{
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++) {
		size_t kept = kept_on(m, gpu);

		if (m->need[gpu].told)
			parties_need(parties, m->id, gpu, kept, kept, now);
	}
}

/* It is where it is, and gets nothing. */
static void leave_alone(struct member *m, double now)
{
	note("silent", m, "it gives no answer, and is left alone");
	parties_leave(parties, m->id, now);
	m->id = parties_join(parties, m->connection->uid, "", m->class, m->weight, now);
	m->silent = true;
	book_kept(m, now);
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		parties_shown(parties, m->id, gpu, m->need[gpu].shown, now);
	m->kept_ms = m->hand == HAND_IN ? now : 0;
	m->hand = HAND_NONE;
	parties_aside(parties, m->id, now);
}

/*
 * It was given room, and has not taken it: a stopped job would keep it from others for as long as it is stopped.
 * When it goes on it joins again, and takes what is free then.
 */
static void take_room_back(struct member *m, double now)
{
	if (m->kept_ms <= 0 || now - m->kept_ms <= TAKES * rules_value(CONF_SILENCE))
		return;
	m->kept_ms = 0;
	book_kept(m, now);
}

static void leave_silent_alone(double now)
{
	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++) {
		if (m->id && !m->connection->ending && silence_left(m, now) == 0)
			leave_alone(m, now);
		if (m->id)
			take_room_back(m, now);
	}
}

/* Whose memory it waits for. */
static void tell_behind(struct member *m, double now)
{
	struct turns_view view = {0};
	const struct member *other;
	bool named;

	members_look(m, now, &view);
	other = view.waits_for ? find_id(view.waits_for) : NULL;
	if (m->behind == (other ? other->id : 0))
		return;
	m->behind = other ? other->id : 0;
	named = other && other->name[0] && other->connection->uid == m->connection->uid;
	connection_say(m->connection, "behind %d%s%s", other ? other->connection->pid : 0,
		       named ? " " : "", named ? other->name : "");
}

/* That it cannot have what it needs, as long as others have what they have. */
static void tell_unfit(struct member *m, double now)
{
	struct turns_view view = {.unfit_on = -1};
	const struct daemon_gpu *gpu;
	char needs[FORMAT_SIZE], there[FORMAT_SIZE], other[FORMAT_SIZE];

	members_look(m, now, &view);
	if (view.unfit_on < 0 && m->needs)
		connection_say(m->connection, "unfit - 0 0");
	if (view.unfit_on >= 0 && !m->needs) {
		gpu = gpus_get(view.unfit_on);
		connection_say(m->connection, "unfit %s %zu %zu", gpu->uuid, view.needs,
			       view.there);
		note("unfit", m, "its job needs %s, and at most %s are there, as others have %s",
		     format_bytes(needs, view.needs), format_bytes(there, view.there),
		     format_bytes(other, gpu->lasts));
	}
	m->needs = view.unfit_on >= 0 ? view.needs : 0;
}

/*
 * What members may have together. Host memory that is pinned to hold what is out takes page tables on the GPU,
 * 2 MiB for a GiB, which a job gives back where it lacks them.
 */
static size_t there_on(int i, const struct daemon_gpu *gpu)
{
	size_t out = 0;

	for (const struct member *m = members_next(NULL); m; m = members_next(m)) {
		size_t missing = m->need[i].total > m->need[i].mapped
					 ? m->need[i].total - m->need[i].mapped
					 : 0;

		out += missing < gpu->total ? missing : gpu->total;
	}
	return (gpu->total > gpu->lasts ? gpu->total - gpu->lasts : 0) + out / 512;
}

static void let_stop(struct member *m)
{
	if (!m->stops || m->hand != HAND_NONE || !parties_may_stop(parties, m->id))
		return;
	m->stops = m->rescued = false;
	connection_say(m->connection, "stop");
}

static double look_left(const struct member *m, double now)
{
	double left = m->looked_ms + rules_value(CONF_RESCUE) - now;

	return left > 0 ? left : 0;
}

/* Milliseconds until the next look whether a member that is to give memory was stopped; negative: never. */
static double rescue_patience(const struct member *m, double now)
{
	return m->hand == HAND_OUT && rules_value(CONF_RESCUE) > 0 ? look_left(m, now) : -1;
}

/* True if a look is due now, and finds that Slurm has stopped it, and had CONF_RESCUE before. */
static bool is_stopped(struct member *m, double now)
{
	double delay = rules_value(CONF_RESCUE);

	if (delay <= 0 || look_left(m, now) > 0)
		return false;
	m->looked_ms = now;
	if (!rescue_is_stopped(m->connection))
		m->stopped_ms = 0;
	else if (m->stopped_ms <= 0)
		m->stopped_ms = now;
	return m->stopped_ms > 0 && now - m->stopped_ms >= delay;
}

static bool has_memory(const struct member *m)
{
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		if (m->need[gpu].mapped)
			return true;
	return false;
}

/* A job that Slurm has stopped with its memory needs no more of its turn, for which others wait. */
static void look_for_stopped(struct member *m, double now)
{
	if (m->hand != HAND_NONE || m->stops || m->idles || m->silent || !has_memory(m) ||
	    !is_stopped(m, now))
		return;
	m->idles = true;
	parties_stops(parties, m->id, true, now);
}

static bool can_be_continued(struct member *m)
{
	const char *obstacle = rescue_obstacle(m->connection);

	if (obstacle && !m->stuck)
		pr_warn("process %d is stopped, and cannot be continued: %s", m->connection->pid,
			obstacle);
	m->stuck |= obstacle != NULL;
	return !obstacle;
}

static void rescue(struct member *m, double now)
{
	if (m->hand != HAND_OUT || !is_stopped(m, now))
		return;
	/* What is said cannot be taken back: a job that reads it when Slurm resumes it would stop itself. */
	if (!can_be_continued(m))
		return;
	connection_say(m->connection, "rescue");
	if (!rescue_continue(m->connection))
		return;
	m->stopped_ms = 0;
	/*
	 * Slurm may stop it again: its SIGSTOP comes some seconds after SIGTSTP. One that is stopped again and
	 * again, and says nothing between, is silent in the end.
	 */
	if (m->rescued)
		return;
	note("rescued", m, "it was stopped with its memory: it goes on until it has given that");
	m->rescued = true;
	m->heard_ms = now > m->heard_ms ? now : m->heard_ms;
}

void members_decide(double now)
{
	struct turns *turns = parties_turns(parties);
	bool waits = parties_next(parties, now) >= 0;
	const struct daemon_gpu *gpu;

	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++)
		if (m->id && !m->connection->ending) {
			if (waits)
				look_for_stopped(m, now);
			rescue(m, now);
		}
	leave_silent_alone(now);
	gpus_take(now);
	gpus_sample(ONLY_NEW_MS, now);
	turns_set(turns,
		  &(struct turns_settings){.quantum_ms = rules_value(CONF_QUANTUM),
					   .residence_ms = rules_value(CONF_RESIDENCE),
					   .idle_ms = rules_value(CONF_IDLE),
					   .rest_ms = rules_value(CONF_REST),
					   .takes_ms = TAKES * rules_value(CONF_SILENCE),
					   .context_after_ms = rules_value(CONF_CONTEXT_AFTER)});
	if (!gpus_are_settled(now))
		return;
	for (int i = 0; (gpu = gpus_get(i)); i++) {
		if (now - gpu->taken_ms > SHOWN_MS)
			forget_shown(i, now);
		turns_capacity(turns, i, gpu->capacity);
		turns_most(turns, i, gpus_is_fresh(i, now) ? gpu->most : TURNS_NO_LIMIT);
		turns_there(turns, i, gpu->total ? there_on(i, gpu) : 0);
		turns_drain(turns, i, gpu->drained);
	}
	parties_decide(parties, now, give_order, &now);
	for (struct member *m = members; m < members + CONNECTIONS_MAX; m++)
		if (m->id && !m->connection->ending && !m->silent) {
			tell_behind(m, now);
			tell_unfit(m, now);
			let_stop(m);
		}
	/* For the next decision, which waits for them. */
	if (parties_next(parties, now) >= 0)
		gpus_sample(WAIT_AGE_MS, now);
}

double members_patience(double now)
{
	double next = parties_next(parties, now);

	if (next >= 0)
		next = clock_shorter(next, WAIT_AGE_MS);
	if (!gpus_are_settled(now))
		next = GPUS_PATIENCE_MS;
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (!m->connection->ending)
			next = clock_shorter(
				next, clock_shorter(silence_left(m, now), rescue_patience(m, now)));
	return next;
}

void members_look(const struct member *member, double now, struct turns_view *view)
{
	parties_look(parties, member->id, now, view);
}

void members_give(const struct member *member, double now)
{
	note("asked", member, "its user gives its turn away");
	parties_give(parties, member->id, now);
}
