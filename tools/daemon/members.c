/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/members.h"
#include "common/clock.h"
#include "common/settings.h"
#include "common/text.h"
#include "tools/daemon/events.h"
#include "tools/daemon/gpus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX "members: "
#include "common/log.h"

#define WAIT_AGE_MS 250  /* of a sample, while somebody waits */
#define CALM_MS     500  /* without a line from a member whose memory moves */
#define FRESH_MS    20   /* of one that a decision is made by */
#define ONLY_NEW_MS 1e15 /* GPUs that were never looked at */
#define ORDERS      64

static struct turns *turns;
static struct members_settings conf;
static struct member members[PEERS_MAX];

static struct event_subject subject_of(const struct member *m)
{
	return (struct event_subject){
		.uid = m->peer->uid, .pid = m->peer->pid, .id = m->job, .name = m->name};
}

#define note(kind, m, ...)                                           \
	do {                                                         \
		const struct event_subject subject_ = subject_of(m); \
                                                                     \
		events_add(kind, &subject_, __VA_ARGS__);            \
	} while (0)

/* Of all members on @gpu; -1 while memory moves there, or has moved since they said so. */
static long mapped_on(int gpu)
{
	double calm_ms = clock_ms() - CALM_MS;
	long sum = 0;

	for (const struct member *m = members_next(NULL); m; m = members_next(m)) {
		if (!m->need[gpu].told)
			continue;
		if (m->moved && m->heard_ms > calm_ms)
			return -1;
		sum += (long)m->need[gpu].mapped;
	}
	return sum;
}

int members_init(const struct members_settings *with)
{
	conf = *with;
	turns = turns_new(&conf.turns);
	if (!turns)
		return -ENOMEM;
	gpus_init(conf.margin, mapped_on);
	return 0;
}

const struct member *members_next(const struct member *previous)
{
	for (int i = previous ? previous - members + 1 : 0; i < PEERS_MAX; i++)
		if (members[i].id)
			return &members[i];
	return NULL;
}

static struct member *find_id(uint32_t id)
{
	for (int i = 0; i < PEERS_MAX; i++)
		if (members[i].id == id)
			return &members[i];
	return NULL;
}

static void refuse(struct peer *peer, const char *code, const char *why)
{
	peer_say(peer, "end %s %s", code, why);
	peer_end(peer);
}

static bool begin(struct peer *peer, const struct line *line)
{
	struct member *m = members;

	if (line->word != LINE_SHARE)
		return false;
	if (line->number[0] != PROTOCOL_SHARE) {
		pr_warn("process %d speaks version %lu, not %d", peer->pid, line->number[0],
			PROTOCOL_SHARE);
		peer_say(peer, "end " END_INVALID " this daemon speaks version %d, the job %lu",
			 PROTOCOL_SHARE, line->number[0]);
		peer_end(peer);
		return true;
	}
	/* There are as many as peers. */
	while (m->peer)
		m++;
	*m = (struct member){.peer = peer, .weight = 1};
	peer->member = m;
	return true;
}

/*
 * A member that was not running when it joined waits for memory by itself: its lease is taken as if
 * its user had paused it, so that it waits for its turn. A job is pausing when it yields, too.
 */
static void tell_paused(struct member *m, double now)
{
	m->waits_alone &= m->state != STATE_RUNNING;
	if (m->state != STATE_PAUSING)
		turns_paused(turns, m->id, m->state == STATE_PAUSED || m->waits_alone, now);
}

static bool take_state(struct member *m, const char *word, double now)
{
	static const char *const names[] = {
#define STATE_NAME(name, text) [STATE_##name] = text,
		STATE_MAP(STATE_NAME)
#undef STATE_NAME
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], word) != 0)
			continue;
		m->state = i;
		if (m->id)
			tell_paused(m, now);
		return true;
	}
	return false;
}

static bool take_need(struct member *m, const struct line *line, double now)
{
	int gpu = gpus_find(line->uuid);

	if (gpu < 0) {
		refuse(m->peer, END_UNSUPPORTED, "there are too many GPUs");
		return true;
	}
	m->need[gpu] = (struct member_need){true, line->number[0], line->number[1]};
	m->moved &= m->hand != HAND_NONE;
	if (m->id)
		turns_need(turns, m->id, gpu, line->number[0], line->number[1], now);
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

/* A word: in lines to commands it is one of several. */
static void take_name(struct member *m, const char *name)
{
	format_copy(m->name, sizeof(m->name), name);
	for (char *p = m->name; *p; p++)
		if (*p == ' ')
			*p = '_';
}

static void join(struct member *m, double now)
{
	m->id = turns_join(turns, m->class, m->weight, now);
	if (!m->id) {
		refuse(m->peer, END_BUSY, "the daemon has as many members as it can");
		return;
	}
	m->peer->kind = PEER_MEMBER;
	for (int gpu = 0; gpu < TURNS_GPUS; gpu++)
		if (m->need[gpu].told)
			turns_need(turns, m->id, gpu, m->need[gpu].mapped, m->need[gpu].total, now);
	m->waits_alone = m->state != STATE_RUNNING;
	tell_paused(m, now);
	gpus_sample(FRESH_MS, now);
	peer_say(m->peer, "welcome %.0f", conf.idle_ms);
	note("joined", m, "%s", m->command);
}

/* A line of the introduction, or one that comes later as well. False: it is malformed. */
static bool take_fact(struct member *m, const struct line *line, double now)
{
	switch (line->word) {
	case LINE_ID:
		format_copy(m->job, sizeof(m->job), line->text);
		return true;
	case LINE_NAME:
		take_name(m, line->text);
		return true;
	case LINE_PID:
		m->own_pid = (pid_t)line->number[0];
		return true;
	case LINE_COMMAND:
		format_copy(m->command, sizeof(m->command), line->text);
		return true;
	case LINE_CLASS:
		return take_class(m, line->text);
	case LINE_WEIGHT:
		return take_weight(m, line->number[0]);
	case LINE_NEED:
		return take_need(m, line, now);
	case LINE_STATE:
		return take_state(m, line->text, now);
	case LINE_PROGRESS:
	case LINE_NOTE:
	case LINE_READY:
	case LINE_WORDS:
		return true;
	default:
		return false;
	}
}

static void take_grow(struct member *m, const struct line *line, double now)
{
	int gpu = gpus_find(line->uuid);
	char bytes[FORMAT_SIZE];

	if (gpu < 0) {
		peer_say(m->peer, "no %lu", line->number[0]);
		return;
	}
	note("grows", m, "an allocation of %s waits", format_bytes(bytes, line->number[1]));
	turns_grow(turns, m->id, line->number[0], gpu, line->number[1], now);
	gpus_sample(FRESH_MS, now);
}

static enum turns_end end_of(const char *text)
{
	static const struct {
		const char *code;
		enum turns_end end;
	} ends[] = {{END_OK, TURNS_OK}, {END_TIMEOUT, TURNS_TIMEOUT}, {END_NOMEM, TURNS_NOMEM}};
	size_t len = strcspn(text, " ");

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (strlen(ends[i].code) == len && !memcmp(ends[i].code, text, len))
			return ends[i].end;
	return TURNS_FAILED;
}

static void note_end(const struct member *m, enum turns_end end, const char *text, double now)
{
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], cleaned[EVENT_TEXT];

	format_duration(took, now - m->since_ms);
	format_copy(cleaned, sizeof(cleaned), text);
	if (end != TURNS_OK)
		note("failed", m, "%s after %s: %s", m->hand == HAND_OUT ? "a yield" : "a fill",
		     took, cleaned);
	else if (m->hand == HAND_OUT)
		note("gave", m, "%s in %s", format_bytes(bytes, m->freed), took);
	else
		note("runs", m, "it has its memory back after %s", took);
}

/* The end of a yield or a fill. Others concern nobody here. */
static void take_end(struct member *m, const char *text, double now)
{
	enum turns_end end = end_of(text);

	if (m->hand == HAND_NONE)
		return;
	note_end(m, end, text, now);
	m->hand = HAND_NONE;
	turns_ended(turns, m->id, end, now);
	m->waits_alone = false;
	tell_paused(m, now);
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
	switch (line->word) {
	case LINE_WANT:
		turns_want(turns, m->id, now);
		return true;
	case LINE_IDLE:
	case LINE_BUSY:
		turns_idle(turns, m->id, line->word == LINE_IDLE, now);
		return true;
	case LINE_GROW:
		take_grow(m, line, now);
		return true;
	case LINE_FREED:
		m->freed = line->number[0];
		turns_freed(turns, m->id, line->number[0], now);
		return true;
	case LINE_MAPPED:
		set_mapped(m, line->number[0]);
		turns_mapped(turns, m->id, line->number[0], now);
		return true;
	case LINE_END:
		take_end(m, line->text, now);
		return true;
	default:
		return take_fact(m, line, now);
	}
}

bool members_take(struct peer *peer, const struct line *line, double now)
{
	struct member *m = peer->member;

	if (!m)
		return begin(peer, line);
	m->heard_ms = now > m->heard_ms ? now : m->heard_ms;
	if (m->id)
		return take_report(m, line, now);
	if (line->word != LINE_JOINED)
		return take_fact(m, line, now);
	join(m, now);
	return true;
}

void members_leave(struct peer *peer)
{
	struct member *m = peer->member;
	double now = clock_ms();

	if (m->id) {
		note("left", m, "%s", m->command);
		turns_leave(turns, m->id, now);
		for (int gpu = 0; gpus_get(gpu); gpu++)
			gpus_leave(gpu, m->need[gpu].mapped);
	}
	*m = (struct member){0};
	peer->member = NULL;
	gpus_sample(0, now);
}

static void begin_hand(struct member *m, enum member_hand hand, double now)
{
	if (m->hand == HAND_NONE)
		m->since_ms = now;
	m->hand = hand;
	m->moved = true;
	m->heard_ms = now;
}

static void give_order(const struct turns_order *order, double now)
{
	struct member *m = find_id(order->id);
	char bytes[FORMAT_SIZE];

	switch (order->kind) {
	case TURNS_YIELD:
		note("gives", m, "up to %s", format_bytes(bytes, order->bytes));
		begin_hand(m, HAND_OUT, now);
		m->freed = 0;
		m->heard_ms += order->timeout_ms;
		if (order->timeout_ms)
			peer_say(m->peer, "yield %lu %d", order->bytes, order->timeout_ms);
		else
			peer_say(m->peer, "yield %lu", order->bytes);
		return;
	case TURNS_ROOM:
		begin_hand(m, HAND_IN, now);
		peer_say(m->peer, "room %lu", order->bytes);
		return;
	case TURNS_TRY:
	case TURNS_NO:
		if (order->kind == TURNS_NO)
			note("refused", m, "there is no memory for the allocation");
		peer_say(m->peer, "%s %lu", order->kind == TURNS_TRY ? "try" : "no", order->serial);
		return;
	case TURNS_WATCH:
		peer_say(m->peer, order->on ? "watch" : "unwatch");
	}
}

static bool is_giving(void)
{
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (m->hand == HAND_OUT)
			return true;
	return false;
}

/* A member that takes memory waits for those who give. */
static double silence_left(const struct member *m, double now)
{
	if (m->hand == HAND_NONE || (m->hand == HAND_IN && is_giving()))
		return -1;
	return m->heard_ms + conf.silence_ms > now ? m->heard_ms + conf.silence_ms - now : 0;
}

static void drop_silent(double now)
{
	for (struct member *m = members; m < members + PEERS_MAX; m++) {
		if (!m->id || m->peer->ending || silence_left(m, now) != 0)
			continue;
		note("silent", m, "it gives no answer, and is left alone");
		refuse(m->peer, END_TIMEOUT, "no answer came in time");
	}
}

void members_decide(double now)
{
	struct turns_order orders[ORDERS];
	size_t n;

	const struct daemon_gpu *gpu;

	drop_silent(now);
	gpus_take();
	gpus_sample(turns_next(turns, now) < 0 ? ONLY_NEW_MS : WAIT_AGE_MS, now);
	if (!gpus_are_settled(now))
		return;
	for (int i = 0; (gpu = gpus_get(i)); i++)
		turns_capacity(turns, i, gpu->capacity);
	while ((n = turns_decide(turns, now, orders, ORDERS)))
		for (size_t i = 0; i < n; i++)
			give_order(&orders[i], now);
}

static double sooner(double a, double b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

double members_patience(double now)
{
	double next = turns_next(turns, now);

	if (next >= 0)
		next = sooner(next, WAIT_AGE_MS);
	if (!gpus_are_settled(now))
		next = GPUS_PATIENCE_MS;
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		if (!m->peer->ending)
			next = sooner(next, silence_left(m, now));
	return next;
}

void members_look(const struct member *member, double now, struct turns_view *view)
{
	turns_look(turns, member->id, now, view);
}

void members_give(const struct member *member, double now)
{
	note("asked", member, "its user gives its turn away");
	turns_give(turns, member->id, now);
}
