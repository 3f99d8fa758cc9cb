/* SPDX-License-Identifier: Apache-2.0 */
/* The members, what they say, and how much of that NVML shows. */
#include "tools/daemon/member.h"
#include "common/reused.h"
#include "common/settings.h"
#include "common/size.h"
#include "common/text.h"
#include "tools/daemon/turns/shown.h"
#include "tools/daemon/gpus.h"
#include "tools/daemon/now.h"
#include "tools/daemon/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "members: "
#include "common/log.h"

#define CALM_MS        500   /* without news of the memory of a member whose memory moves */
#define FRESH_MS       20    /* of a sample that a decision is made by */
#define SHORT_AGAIN_MS 60000 /* until a member is told once more that host memory is short */

struct parties *members_parties;
struct member members_all[CONNECTIONS_MAX];

/* It may have another part of its memory on the GPUs than it has said, or had at some time since @since. */
static bool is_unsure(const struct member *m, double since, double now)
{
	if (m->silent)
		return false;
	/* It says so at the end of a pause, and in full at that of a yield. */
	if ((m->state == STATE_PAUSING && !m->drains &&
	     now - m->state_ms < rules_value(CONF_SILENCE)) ||
	    (m->hand == HAND_OUT && m->freed))
		return true;
	return m->still_ms > since || (m->moved && m->moved_ms > now - CALM_MS);
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

/* The same; -1 while memory moves there, or has moved since they said so, or since @since. */
static long mapped_on(int gpu, double since)
{
	double now = now_ms();

	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (m->need[gpu].told && is_unsure(m, since, now))
			return -1;
	return (long)told_on(gpu);
}

/* @asked: as in turns_shown(). */
static void set_shown(struct member *m, int gpu, size_t bytes, double asked, double now)
{
	m->need[gpu].shown = bytes;
	parties_shown(members_parties, m->id, gpu, bytes, asked, now);
}

/*
 * Among users who need not trust each other, no member keeps memory from others that NVML does not show: what it
 * says beyond that counts as nothing.
 */
static void take_shown(int gpu, const struct sample *sample, double asked, double now)
{
	static struct shown shown;

	if (!connections_are_of_everybody())
		return;
	shown_begin(&shown, sample);
	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++)
		if (m->id)
			set_shown(m, gpu,
				  shown_bound(&shown, m->connection->pid, m->need[gpu].mapped),
				  asked, now);
}

/* What each of them has on @gpu beyond its memory. Of one that is not listed by its PID it is not known. */
static void take_contexts(int gpu, const struct sample *sample, double asked, double now)
{
	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++) {
		size_t bytes = 0;

		if (!m->id || is_unsure(m, asked, now))
			continue;
		for (int i = 0; i < sample->nholders && m->connection->pid > 0; i++)
			if (sample->holders[i].pid == m->connection->pid)
				bytes = size_less(sample->holders[i].bytes, m->need[gpu].mapped);
		m->need[gpu].context = bytes;
		parties_context(members_parties, m->id, gpu, bytes, now);
	}
}

static void take_sample(int gpu, const struct sample *sample, double asked, double now)
{
	take_shown(gpu, sample, asked, now);
	take_contexts(gpu, sample, asked, now);
}

void members_forget_shown(int gpu, double now)
{
	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++)
		if (m->id && m->need[gpu].shown != TURNS_NO_LIMIT)
			set_shown(m, gpu, TURNS_NO_LIMIT, 0, now);
}

static bool is_used(int gpu)
{
	for (const struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++)
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
	for (struct member *m = members_all; m < members_all + CONNECTIONS_MAX; m++) {
		if (!m->connection || !m->need[gpu].told)
			continue;
		if (m->id)
			member_note("dropped", m, "%s", why);
		connection_answer(m->connection, END_UNSUPPORTED, "%s", why);
		/* At once, as its memory must not count on the GPU that comes. */
		members_leave(m->connection);
	}
}

int members_init(void)
{
	const struct gpus_users users = {
		.shown = take_sample, .mapped = mapped_on, .used = is_used, .end = end_users};

	members_parties = parties_new(&(struct turns_settings){0});
	if (!members_parties)
		return -ENOMEM;
	gpus_init(&users, now_ms());
	return 0;
}

const struct member *members_next(const struct member *previous)
{
	for (int i = previous ? previous - members_all + 1 : 0; i < CONNECTIONS_MAX; i++)
		if (members_all[i].id)
			return &members_all[i];
	return NULL;
}

struct member *member_find(uint32_t id)
{
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		if (members_all[i].id == id)
			return &members_all[i];
	return NULL;
}

static bool begin(struct connection *connection, const struct line *line)
{
	struct member *m = members_all;

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
				  "the user has as many jobs here as jobs-per-user allows");
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
		parties_paused(members_parties, m->id, m->state == STATE_PAUSED,
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
			  !parties_is_out(members_parties, m->id);
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
	m->told = m->freed;
	if (m->moved && m->hand == HAND_NONE) {
		m->moved = false;
		m->still_ms = now;
	}
	if (m->id)
		parties_need(members_parties, m->id, gpu, line->number[0], line->number[1], now);
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
	m->id = parties_join(members_parties, m->connection->uid, m->job, m->class, m->weight, now);
	if (!m->id) {
		connection_answer(m->connection, END_BUSY,
				  "the daemon has no place for another job");
		return;
	}
	m->connection->kind = CONNECTION_MEMBER;
	parties_context_after(members_parties, m->id, m->context_after);
	if (m->restored)
		parties_restored(members_parties, m->id, m->released, now);
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		if (m->need[gpu].told)
			parties_need(members_parties, m->id, gpu, m->need[gpu].mapped,
				     m->need[gpu].total, now);
	m->waits_alone = m->state != STATE_RUNNING;
	tell_paused(m, now);
	gpus_sample_anew(now);
	/* A sample comes before the next decision. */
	for (int gpu = 0; gpu < TURNS_GPUS && connections_are_of_everybody(); gpu++)
		set_shown(m, gpu, 0, 0, now);
	connection_say(m->connection, "welcome %.0f", parties_idle_limit(members_parties, m->id));
	member_note("joined", m, "%s", m->command);
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
		member_note("kept", m, "its context, which others need: %s", cleaned);
		return true;
	}
	m->released = !strcmp(text, "out");
	m->restored = true;
	if (!m->released && strcmp(text, "restored") != 0)
		return false;
	if (m->id && m->released)
		member_note("released", m, "its context, too; it runs beside nobody from now on");
	else if (m->id && was_out)
		take_context_back(m, now);
	if (m->id)
		parties_restored(members_parties, m->id, m->released, now);
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
	member_note("grows", m, "an allocation of %s waits", format_bytes(bytes, line->number[1]));
	parties_grow(members_parties, m->id, line->number[0], gpu, line->number[1], now);
	if (line->id == MEMBER_PINNED)
		parties_pinned(members_parties, m->id, line->number[0], now);
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
		member_note("failed", m, "%s after %s: %s %s",
			    m->hand == HAND_OUT ? "a yield" : "a fill", took, end_names[line->end],
			    cleaned);
	else if (m->hand == HAND_OUT)
		member_note("gave", m, "%s in %s", format_bytes(bytes, m->freed), took);
	else
		member_note("runs", m, "it has its memory back after %s", took);
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
	parties_ended(members_parties, m->id, end, now);
	/* It was continued before it could be told that it is to stop again. */
	if (m->idles && !m->rescued)
		parties_stops(members_parties, m->id, false, now);
	m->idles = false;
	m->waits_alone &= end != TURNS_OK;
	tell_paused(m, now);
}

/* That of a fill may cross a yield, which calls the fill off. False: it is malformed. */
static bool take_held(struct member *m, const struct line *line, double now)
{
	bool filled = m->filled;

	m->filled = false;
	return (m->hand == HAND_OUT && filled) || !parties_take(members_parties, m->id, line, now);
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

/* What those that run have pinned is of no use to them, and nobody else can have it. */
static void tell_of_shortage(uint64_t group, double now)
{
	for (const struct member *m = members_next(NULL); m; m = members_next(m)) {
		if (!m->id || m->silent || (m->short_ms > 0 && now - m->short_ms < SHORT_AGAIN_MS))
			continue;
		member_find(m->id)->short_ms = now;
		connection_say(m->connection, "short %" PRIu64, group);
	}
}

static bool take_report(struct member *m, const struct line *line, double now)
{
	switch (line->id) {
	case MEMBER_WANT:
		parties_want(members_parties, m->id, now);
		return true;
	case MEMBER_IDLE:
	case MEMBER_BUSY:
		parties_idle(members_parties, m->id, line->id == MEMBER_IDLE, now);
		return true;
	case MEMBER_GROW:
	case MEMBER_PINNED:
		take_grow(m, line, now);
		return true;
	case MEMBER_FORGET:
		parties_forget(members_parties, m->id, line->number[0], now);
		return true;
	case MEMBER_ENDS:
		member_note("ends", m, "a signal ends it: it gets its turn before others");
		parties_ends(members_parties, m->id, now);
		return true;
	case MEMBER_STOPS:
	case MEMBER_GOES:
		m->stops = line->id == MEMBER_STOPS;
		m->rescued &= m->stops;
		parties_stops(members_parties, m->id, m->stops, now);
		return true;
	case MEMBER_PING:
		connection_say(m->connection, "pong");
		return true;
	case REPORT_FREED:
		m->freed = line->number[0];
		parties_freed(members_parties, m->id, line->number[0], now);
		return true;
	case REPORT_MAPPED:
		set_mapped(m, line->number[0]);
		parties_mapped(members_parties, m->id, line->number[0], now);
		return true;
	case REPORT_SHORT:
		tell_of_shortage(line->number[0], now);
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
		return !parties_take(members_parties, m->id, line, now);
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

void members_leave(struct connection *connection)
{
	struct member *m = connection->member;
	double now = now_ms();

	if (m->id) {
		member_note("left", m, "%s", m->command);
		parties_leave(members_parties, m->id, now);
		for (int gpu = 0; gpus_get(gpu); gpu++)
			gpus_leave(gpu, counted_on(m, gpu), told_on(gpu), now);
		gpus_sample(0, now);
	}
	*m = (struct member){0};
	reused_rests(m->job, m + 1);
	connection->member = NULL;
}
