/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/books.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_HANDOVER_MS 500 /* until one is measured */
#define QUANTUM_HANDOVERS 20  /* at most a twentieth of the time goes to hand-overs */
#define QUANTUM_MIN_MS    10000
#define QUANTUM_MAX_MS    120000
#define REST_MS           2000 /* for the kernels of a member that is to leave, at first */
#define REST_MAX_MS       16000 /* and when that was too short, each time twice as long, by default */
#define BACK_OFF_MS       10000  /* for a member that did not come to rest */
#define BACK_OFF_RESTS    20.0   /* at most so many times what it had for its kernels */
#define RETRY_MS          1000   /* for a member that could not take memory back */
#define GOT_MS            2000   /* for a member to take what it got, and to say so */
#define CONTEXT_RETRY_MS  600000 /* for a member that could not give its context */
#define TAKEN_STEP        (UINT64_C(128) << 20) /* half of what a job takes between two lines */

struct turns *turns_new(const struct turns_settings *settings)
{
	struct turns *t = calloc(1, sizeof(*t));

	if (t) {
		t->settings = *settings;
		t->handover_ms = FIRST_HANDOVER_MS;
	}
	return t;
}

void turns_free(struct turns *t)
{
	free(t);
}

void turns_set(struct turns *t, const struct turns_settings *settings)
{
	t->settings = *settings;
}

struct account *books_find(struct turns *t, uint32_t id)
{
	FOR_EACH_MEMBER(t, m)
		if (m->id == id)
			return m;
	return NULL;
}

bool books_uses(const struct account *m, int gpu)
{
	const struct need *n = &m->need[gpu];

	if (n->mapped || n->total || n->promised)
		return true;
	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].gpu == gpu)
			return true;
	return false;
}

static bool has_one_gpu(const struct account *m)
{
	int n = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		n += books_uses(m, g);
	return n <= 1;
}

bool books_takes_parts(const struct account *m)
{
	return !m->released && (m->parts || has_one_gpu(m));
}

double books_pinned_at(const struct account *m)
{
	double first = 0;

	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].pinned_at > 0 && (first <= 0 || m->grows[i].pinned_at < first))
			first = m->grows[i].pinned_at;
	return first;
}

uint64_t books_has(const struct account *m, int gpu)
{
	const struct need *n = &m->need[gpu];

	return n->mapped < n->shown + n->got ? n->mapped : n->shown + n->got;
}

void books_get(struct account *m, int gpu, uint64_t bytes, double now)
{
	uint64_t *got = &m->need[gpu].got;

	*got = bytes < TURNS_NO_LIMIT - *got ? *got + bytes : TURNS_NO_LIMIT;
	m->got_at = now;
}

uint64_t books_said(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += m->need[g].mapped;
	return sum;
}

uint64_t books_shown(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS && sum < TURNS_NO_LIMIT; g++)
		if (books_uses(m, g))
			sum += m->need[g].shown;
	return sum < TURNS_NO_LIMIT ? sum : TURNS_NO_LIMIT;
}

uint64_t books_mapped(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += books_has(m, g);
	return sum;
}

bool books_is_on_drained(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->drained[g] && m->need[g].mapped)
			return true;
	return false;
}

static uint64_t total_of(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += m->need[g].total;
	return sum;
}

uint64_t books_most(const struct turns *t, int gpu)
{
	uint64_t capacity = t->capacity[gpu] == TURNS_NO_LIMIT ? 0 : t->capacity[gpu];

	return capacity > t->most[gpu] ? capacity : t->most[gpu];
}

uint64_t books_wanted(const struct turns *t, const struct account *m, int gpu)
{
	const struct need *n = &m->need[gpu];
	uint64_t bytes = n->total > n->mapped || m->phase != PHASE_RUNS ? n->total : n->mapped;
	uint64_t most = books_most(t, gpu);

	for (int i = 0; i < m->ngrows; i++)
		if (m->grows[i].gpu == gpu && bytes <= most && m->grows[i].bytes <= most - bytes)
			bytes += m->grows[i].bytes;
	return bytes;
}

/* It may use its room until it has ended the yield that takes it. */
uint64_t books_may_have(const struct account *m, int gpu)
{
	uint64_t has = books_has(m, gpu), room = m->need[gpu].room;

	return room > has ? room : has;
}

uint64_t books_held(const struct account *m, int gpu)
{
	return books_may_have(m, gpu) + m->need[gpu].promised;
}

int64_t books_free(const struct turns *t, int gpu)
{
	int64_t bytes = (int64_t)t->capacity[gpu];

	FOR_EACH_MEMBER(t, m)
		bytes -= (int64_t)books_held(m, gpu);
	return bytes;
}

static bool is_active(const struct account *m)
{
	return m->phase == PHASE_RUNS && !books_is_idle(m) && !m->paused && !m->ngrows;
}

/* It has been told to leave, and its kernels still run: that is its time. */
static bool drains(const struct account *m)
{
	return m->phase == PHASE_LEAVING && m->ran && !m->rests && !m->paused;
}

/* The share of the time that @m had: the least of its GPUs', each divided by those that ran there. */
static double share_of(const struct turns *t, const struct account *m)
{
	int most = 1;

	for (int g = 0; g < TURNS_GPUS; g++) {
		int n = 0;

		if (!books_uses(m, g))
			continue;
		FOR_EACH_MEMBER(t, other)
			n += (is_active(other) || drains(other)) && books_uses(other, g);
		most = n > most ? n : most;
	}
	return 1.0 / most;
}

void books_advance(struct turns *t, double now)
{
	double passed = now - t->now;

	if (passed <= 0)
		return;
	t->now = now;
	FOR_EACH_MEMBER(t, m) {
		if (is_active(m) || drains(m))
			m->vtime += passed * share_of(t, m) / m->weight;
		if (now - m->got_at >= GOT_MS)
			for (int g = 0; g < TURNS_GPUS; g++)
				m->need[g].promised = 0;
	}
}

/* When the first of its allocations began to wait; 0: none waits. */
static double waits_since(const struct account *m)
{
	double first = 0;

	for (int i = 0; i < m->ngrows; i++)
		if (first <= 0 || m->grows[i].since < first)
			first = m->grows[i].since;
	return first;
}

uint64_t books_room(const struct account *m)
{
	uint64_t sum = 0;

	for (int g = 0; g < TURNS_GPUS; g++)
		sum += m->need[g].room;
	return sum;
}

static void end_room(struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		m->need[g].room = 0;
}

void books_set_phase(struct account *m, enum phase phase, double now)
{
	m->phase = phase;
	m->phase_since = m->progress_at = now;
	m->ending &= phase != PHASE_RUNS;
	m->came &= phase != PHASE_OUT;
	/* What an allocation was promised it cannot take while its member is out, and asks for anew. */
	for (int g = 0; g < TURNS_GPUS && phase == PHASE_OUT; g++)
		m->need[g].promised = 0;
	if (phase == PHASE_RUNS) {
		m->wants = m->given = m->woken = m->released = false;
		end_room(m);
		/* An allocation keeps its place among those who wait. */
		m->wait_since = waits_since(m);
	}
}

void books_end_handover(struct turns *t, struct account *m)
{
	m->slot = false;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->slot[g] == m->id)
			t->slot[g] = 0;
	FOR_EACH_MEMBER(t, other)
		if (other->leaves_for == m->id)
			other->leaves_for = 0;
}

void books_give_room(struct account *m, const uint64_t *room, double now)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		m->need[g].room = room[g];
	m->told = true;
	m->taken = books_shown(m);
	m->taken_at = now;
}

bool books_order(struct turns *t, const struct turns_order *order)
{
	if (t->norders == sizeof(t->orders) / sizeof(t->orders[0]))
		return false;
	t->orders[t->norders++] = *order;
	return true;
}

void turns_capacity(struct turns *t, int gpu, uint64_t bytes)
{
	t->capacity[gpu] = bytes;
}

void turns_most(struct turns *t, int gpu, uint64_t bytes)
{
	t->most[gpu] = bytes;
}

void turns_there(struct turns *t, int gpu, uint64_t bytes)
{
	t->there[gpu] = bytes;
}

int books_unfit_on(const struct turns *t, const struct account *m)
{
	for (int g = 0; g < TURNS_GPUS; g++)
		if (t->there[g] && m->need[g].total > t->there[g])
			return g;
	return -1;
}

void turns_drain(struct turns *t, int gpu, bool drained)
{
	FOR_EACH_MEMBER(t, m)
		m->takes_all &= m->paused || drained || !t->drained[gpu];
	t->drained[gpu] = drained;
}

/* The least virtual time of those that run or want to; @m's own if there is none. */
static double least_vtime(struct turns *t, const struct account *m)
{
	double least = -1;

	FOR_EACH_MEMBER(t, other)
		if (other != m && (is_active(other) || other->wants) &&
		    (least < 0 || other->vtime < least))
			least = other->vtime;
	return least < 0 ? m->vtime : least;
}

uint32_t turns_join(struct turns *t, enum turns_class class, int weight, double now)
{
	books_advance(t, now);
	for (struct account *m = t->members; m < t->members + TURNS_MEMBERS; m++) {
		if (m->id)
			continue;
		do {
			t->last_id++;
		} while (!t->last_id || books_find(t, t->last_id));
		*m = (struct account){.class = class,
				      .weight = weight,
				      .phase_since = now,
				      .context_after = -1,
				      .came = true};
		m->vtime = least_vtime(t, m);
		for (int g = 0; g < TURNS_GPUS; g++)
			m->need[g].shown = TURNS_NO_LIMIT;
		m->id = t->last_id;
		if (m - t->members >= t->nmembers)
			t->nmembers = (int)(m - t->members) + 1;
		return m->id;
	}
	return 0;
}

void turns_leave(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	if (m->leaves_for) {
		struct account *entrant = books_find(t, m->leaves_for);

		if (entrant)
			entrant->progress_at = now;
	}
	books_end_handover(t, m);
	*m = (struct account){.id = 0};
	/* There may be room now for one that could not give, or take back, what it has. */
	FOR_EACH_MEMBER(t, other)
		if (other->phase == PHASE_OUT)
			other->giving.until = other->taking.until = 0;
}

static void progress(struct turns *t, struct account *m, double now)
{
	struct account *entrant = m->leaves_for ? books_find(t, m->leaves_for) : NULL;

	m->progress_at = now;
	if (entrant)
		entrant->progress_at = now;
}

/* What was promised is in what it has now, which was @had. */
static void keep_promise(struct account *m, int gpu, uint64_t had)
{
	uint64_t *promised = &m->need[gpu].promised, has = books_has(m, gpu);

	if (has > had)
		*promised -= has - had < *promised ? has - had : *promised;
}

void turns_need(struct turns *t, uint32_t id, int gpu, uint64_t mapped, uint64_t total, double now)
{
	struct account *m = books_find(t, id);
	struct need *n;
	uint64_t had;

	books_advance(t, now);
	if (!m)
		return;
	n = &m->need[gpu];
	had = books_has(m, gpu);
	/* An allocation that was let through before the yield. */
	if (mapped > n->mapped && m->phase == PHASE_LEAVING)
		m->yield_from += mapped - n->mapped;
	m->came |= m->phase == PHASE_RUNS && !n->mapped && mapped;
	m->takes_all |= t->drained[gpu] && m->phase == PHASE_RUNS && !n->mapped && mapped;
	n->mapped = mapped;
	n->total = total;
	keep_promise(m, gpu, had);
}

void turns_shown(struct turns *t, uint32_t id, int gpu, uint64_t bytes, double asked, double now)
{
	struct account *m = books_find(t, id);
	uint64_t had, shown;

	books_advance(t, now);
	if (!m)
		return;
	had = books_has(m, gpu);
	m->need[gpu].shown = bytes;
	/* By the time of the question: the answer may come much later, as NVML may block. */
	if (asked - m->got_at >= GOT_MS)
		m->need[gpu].got = 0;
	keep_promise(m, gpu, had);
	shown = books_shown(m);
	if (shown < TURNS_NO_LIMIT &&
	    (m->taken == TURNS_NO_LIMIT || shown >= m->taken + TAKEN_STEP)) {
		m->taken = shown;
		m->taken_at = now;
	}
}

void turns_context_after(struct turns *t, uint32_t id, double ms)
{
	struct account *m = books_find(t, id);

	if (m)
		m->context_after = ms;
}

void turns_context(struct turns *t, uint32_t id, int gpu, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (m)
		m->need[gpu].context = bytes;
}

void turns_restored(struct turns *t, uint32_t id, bool out, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	m->alone = true;
	m->released = out;
	m->came |= m->phase == PHASE_RUNS;
}

/* A member with one GPU says there what it has in all. */
static void set_mapped(struct account *m, uint64_t bytes)
{
	if (!has_one_gpu(m))
		return;
	for (int g = 0; g < TURNS_GPUS; g++)
		if (books_uses(m, g))
			m->need[g].mapped = bytes;
}

void turns_mapped(struct turns *t, uint32_t id, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	set_mapped(m, bytes);
	/* Of a yield it is the last word, and its end follows. */
	if (m->phase != PHASE_LEAVING)
		progress(t, m, now);
}

void turns_freed(struct turns *t, uint32_t id, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase != PHASE_LEAVING)
		return;
	if (bytes > m->freed)
		progress(t, m, now);
	m->freed = bytes;
	m->rests |= bytes > 0;
	set_mapped(m, bytes < m->yield_from ? m->yield_from - bytes : 0);
}

void turns_rests(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (m)
		m->rests = true;
}

void turns_progress(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (m)
		progress(t, m, now);
}

static double rest_most(const struct turns *t)
{
	return t->settings.rest_ms > 0 ? t->settings.rest_ms : REST_MAX_MS;
}

double books_rest_ms(const struct turns *t, const struct account *m)
{
	double ms = m->rest_ms ? m->rest_ms : REST_MS;

	return ms < rest_most(t) ? ms : rest_most(t);
}

double books_quantum(const struct turns *t)
{
	double ms = t->settings.quantum_ms > 0 ? t->settings.quantum_ms
					       : QUANTUM_HANDOVERS * t->handover_ms;

	if (t->settings.quantum_ms > 0)
		return ms;
	return ms < QUANTUM_MIN_MS ? QUANTUM_MIN_MS : ms > QUANTUM_MAX_MS ? QUANTUM_MAX_MS : ms;
}

/* What it takes to begin a turn of @m. */
static double price_of(const struct turns *t, const struct account *m)
{
	return m->entered_ms > 0 ? m->entered_ms : t->handover_ms;
}

double books_idle_limit(const struct turns *t, const struct account *m)
{
	return t->settings.idle_ms > 0 ? t->settings.idle_ms
				       : idleness_limit(&m->idleness, price_of(t, m));
}

static void end_idleness(const struct turns *t, struct account *m)
{
	idleness_end(&m->idleness, price_of(t, m), t->now);
}

static void start_to_wait(struct account *m, double now)
{
	if (m->wait_since <= 0)
		m->wait_since = now;
}

/* For the time that it did not want the GPU it gets one turn's credit at most. */
static void limit_credit(struct turns *t, struct account *m)
{
	double least = least_vtime(t, m) - books_quantum(t);

	if (m->vtime < least)
		m->vtime = least;
}

void turns_want(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase == PHASE_RUNS || m->wants)
		return;
	limit_credit(t, m);
	m->wants = true;
	m->woken = books_is_idle(m);
	end_idleness(t, m);
	start_to_wait(m, now);
}

void turns_idle(struct turns *t, uint32_t id, bool idle, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	if (idle) {
		idleness_begin(&m->idleness, now);
	} else if (books_is_idle(m)) {
		limit_credit(t, m);
		idleness_forget(&m->idleness);
	}
}

void turns_busy(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || !books_is_idle(m))
		return;
	limit_credit(t, m);
	end_idleness(t, m);
}

void turns_takes_parts(struct turns *t, uint32_t id, bool takes)
{
	struct account *m = books_find(t, id);

	if (m)
		m->parts = takes;
}

double turns_idle_limit(struct turns *t, uint32_t id)
{
	struct account *m = books_find(t, id);

	if (m && !m->idleness.told)
		m->idleness.told = books_idle_limit(t, m);
	return m ? m->idleness.told : 0;
}

void turns_paused(struct turns *t, uint32_t id, bool paused, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	/* What it had room for is taken back: its user may let it run at any time. */
	if (paused && !m->paused)
		m->takes_all = true;
	m->paused = paused;
	if (!paused) {
		/* Nothing was taken, and it runs on. */
		m->takes_all &= m->phase != PHASE_RUNS || books_is_on_drained(t, m);
		if (m->ngrows)
			start_to_wait(m, now);
		return;
	}
	m->wants = m->woken = m->given = m->ending = false;
	m->wait_since = 0;
	if (m->phase == PHASE_ENTERS)
		books_set_phase(m, PHASE_OUT, now);
	if (m->slot)
		books_end_handover(t, m);
}

bool turns_gives_all(struct turns *t, uint32_t id)
{
	const struct account *m = books_find(t, id);

	return m && m->paused && m->takes_all;
}

void turns_aside(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	turns_paused(t, id, true, now);
	m->takes_all = false;
	m->giving.until = INFINITY;
}

void turns_grow(struct turns *t, uint32_t id, uint64_t serial, int gpu, uint64_t bytes, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	if (m->ngrows == TURNS_GROWS) {
		books_order(t, &(struct turns_order){.kind = TURNS_NO, .id = id, .serial = serial});
		return;
	}
	m->grows[m->ngrows++] =
		(struct grow){.serial = serial, .bytes = bytes, .gpu = gpu, .since = now};
	end_idleness(t, m);
	start_to_wait(m, now);
}

void books_end_grow(struct account *m, int i)
{
	m->ngrows--;
	memmove(m->grows + i, m->grows + i + 1, (size_t)(m->ngrows - i) * sizeof(*m->grows));
	if (!m->ngrows && m->phase == PHASE_RUNS)
		m->wait_since = 0;
}

void turns_forget(struct turns *t, uint32_t id, uint64_t first, uint64_t last, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m)
		return;
	for (int i = m->ngrows; i-- > 0;)
		if (m->grows[i].serial >= first && m->grows[i].serial <= last)
			books_end_grow(m, i);
	if (m->slot && m->phase == PHASE_RUNS && !m->ngrows)
		books_end_handover(t, m);
}

bool turns_promised(struct turns *t, uint32_t id, int gpu)
{
	const struct account *m = books_find(t, id);

	return m && m->need[gpu].promised;
}

void turns_pinned(struct turns *t, uint32_t id, uint64_t serial, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	for (int i = 0; m && i < m->ngrows; i++)
		if (m->grows[i].serial == serial)
			m->grows[i].pinned_at = now;
}

void turns_ends(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	turns_want(t, id, now);
	if (!m || m->phase == PHASE_RUNS)
		return;
	m->taking.until = 0;
	m->ending = true;
	m->ending_since = now;
}

static void back_off(struct turns *t, struct account *m, struct back_off *b, double first_ms)
{
	double most = BACK_OFF_RESTS * books_rest_ms(t, m);

	b->ms = b->ms < first_ms ? first_ms : b->ms * 2;
	if (b->ms > most && b->ms > first_ms)
		b->ms = most > first_ms ? most : first_ms;
	b->until = t->now + b->ms;
}

void books_take_room_back(struct turns *t, struct account *m, double now)
{
	end_room(m);
	if (m->phase != PHASE_ENTERS)
		return;
	/* It could have run. */
	m->vtime += (now - m->phase_since) / m->weight;
	books_end_handover(t, m);
	books_set_phase(m, PHASE_OUT, now);
	back_off(t, m, &m->taking, RETRY_MS);
}

/* It had to give its context, and kept it: not again soon, and whoever was to run without that cannot. */
static void keep_context(struct turns *t, struct account *m, enum turns_end end, double now)
{
	struct account *entrant = books_find(t, m->leaves_for);

	if (entrant)
		entrant->gets_contexts = false;
	if (end == TURNS_OK)
		m->context_until = now + CONTEXT_RETRY_MS;
}

/*
 * The one that gets the memory waits for the rest of it, and asks once more. If that was of no use before, @m is not
 * kept from its turn: else none of them would ever run.
 */
static void fail_yield(struct turns *t, struct account *m)
{
	bool hopes = m->ran ? !m->giving.ms : m->freed;

	back_off(t, m, &m->giving, BACK_OFF_MS);
	if (hopes)
		m->taking.until = m->giving.until;
}

static void end_yield(struct turns *t, struct account *m, enum turns_end end, double now)
{
	bool kept_all = end != TURNS_OK && end != TURNS_LEFT && !m->freed;

	progress(t, m, now);
	if (m->gives_context && !m->released)
		keep_context(t, m, end, now);
	m->gives_context = false;
	m->leaves_for = 0;
	if (end != TURNS_OK)
		fail_yield(t, m);
	if (end == TURNS_TIMEOUT && books_rest_ms(t, m) < rest_most(t))
		m->rest_ms = 2 * books_rest_ms(t, m);
	if (end == TURNS_OK)
		m->giving.ms = 0;
	end_room(m);
	/* Unless it was paused while it gave a part. */
	if (end == TURNS_OK)
		m->takes_all &= m->paused && !m->gives_all;
	/* Nothing was freed of a member that ran: it runs on. */
	books_set_phase(m, kept_all && m->ran ? PHASE_RUNS : PHASE_OUT, now);
}

static void end_fill(struct turns *t, struct account *m, enum turns_end end, double now)
{
	if (end != TURNS_OK) {
		books_end_handover(t, m);
		books_set_phase(m, PHASE_OUT, now);
		end_room(m);
		back_off(t, m, &m->taking, RETRY_MS);
		return;
	}
	if (m->phase == PHASE_ENTERS && m->turn_at > 0) {
		double took = now - m->turn_at;

		t->handover_ms += (took - t->handover_ms) / 4;
		/* Those who give for the first time also make the host memory for it: that comes once. */
		m->entered_ms =
			m->entered++ < 2 ? took : m->entered_ms + (took - m->entered_ms) / 4;
	}
	books_end_handover(t, m);
	m->taking.ms = 0;
	m->handovers++;
	m->came = m->phase != PHASE_ENTERS;
	if (m->ending)
		m->safe_until = now + books_quantum(t);
	books_set_phase(m, PHASE_RUNS, now);
	for (int g = 0; g < TURNS_GPUS; g++) {
		m->need[g].got = 0;
		books_get(m, g, m->need[g].total, now);
	}
}

void turns_ended(struct turns *t, uint32_t id, enum turns_end end, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase == PHASE_RUNS)
		return;
	if (m->phase == PHASE_LEAVING)
		end_yield(t, m, end, now);
	else
		end_fill(t, m, end, now);
}

void turns_give(struct turns *t, uint32_t id, double now)
{
	struct account *m = books_find(t, id);

	books_advance(t, now);
	if (!m || m->phase != PHASE_RUNS || isinf(m->giving.until))
		return;
	m->given = true;
	m->given_at = now;
}

static const char *state_of(const struct account *m)
{
	if (m->paused)
		return "paused";
	switch (m->phase) {
	case PHASE_RUNS:
		return m->ngrows || m->ending ? "waits" : books_is_idle(m) ? "idle" : "runs";
	case PHASE_LEAVING:
		return "leaving";
	case PHASE_ENTERS:
		return "enters";
	case PHASE_OUT:
		break;
	}
	return m->wants ? "waits" : "out";
}

/* The member whose memory @m waits for: one that runs before one that only keeps some. */
static uint32_t waits_for(struct turns *t, const struct account *m)
{
	const struct account *found = NULL, *keeps = NULL;

	FOR_EACH_MEMBER(t, other) {
		bool meets = false;

		for (int g = 0; g < TURNS_GPUS; g++)
			meets |= books_uses(m, g) && books_uses(other, g);
		if (other == m || !meets)
			continue;
		if (other->leaves_for == m->id)
			return other->id;
		if (is_active(other) && (!found || other->phase_since < found->phase_since))
			found = other;
		if (books_mapped(other) && (!keeps || books_mapped(other) > books_mapped(keeps)))
			keeps = other;
	}
	if (!found)
		found = keeps;
	return found ? found->id : 0;
}

static bool anybody_waits(struct turns *t)
{
	FOR_EACH_MEMBER(t, m)
		if (m->wait_since > 0 && !m->paused)
			return true;
	return false;
}

bool turns_look(struct turns *t, uint32_t id, double now, struct turns_view *view)
{
	struct account *m = books_find(t, id);
	double left;

	books_advance(t, now);
	if (!m)
		return false;
	left = m->phase_since + books_quantum(t) - now;
	*view = (struct turns_view){
		.state = state_of(m),
		.granted = m->phase == PHASE_RUNS || books_room(m) < books_mapped(m)
				   ? books_mapped(m)
				   : books_room(m),
		.mapped = books_mapped(m),
		.total = total_of(m),
		.wait_ms = m->wait_since > 0 ? now - m->wait_since : 0,
		.left_ms = is_active(m) && left > 0 && anybody_waits(t) ? left : 0,
		.handovers = m->handovers,
		.waits_for = m->wait_since > 0 ? waits_for(t, m) : 0,
		.unfit_on = m->phase == PHASE_RUNS || m->paused || !m->wants ||
					    (m->slot && m->gets_contexts)
				    ? -1
				    : books_unfit_on(t, m),
		.context = m->released ? "out"
			   : m->alone  ? "restored"
				       : "in"};
	if (view->unfit_on >= 0) {
		view->needs = m->need[view->unfit_on].total;
		view->there = t->there[view->unfit_on];
	}
	return true;
}

void books_check(const struct turns *t)
{
	for (int g = 0; g < TURNS_GPUS; g++) {
		bool found = false;

		if (!t->slot[g])
			continue;
		FOR_EACH_MEMBER(t, m)
			if (m->id == t->slot[g]) {
				found = true;
				assert(m->slot && !m->paused);
				assert(m->phase == PHASE_ENTERS ||
				       (m->phase == PHASE_RUNS && m->ngrows));
			}
		assert(found);
	}
	FOR_EACH_MEMBER(t, m) {
		bool found = !m->slot;

		assert(m->weight >= 1);
		assert(m->phase != PHASE_ENTERS || (m->wants && !m->paused));
		assert(m->phase == PHASE_LEAVING || (!m->leaves_for && !m->gives_context));
		assert(m->alone || !m->released);
		assert(m->phase != PHASE_RUNS || !books_room(m));
		assert(m->wants || !m->ending);
		for (int g = 0; g < TURNS_GPUS; g++) {
			found |= t->slot[g] == m->id;
			assert(m->phase != PHASE_RUNS || !books_uses(m, g) ||
			       books_held(m, g) <=
				       m->need[g].shown + m->need[g].got + m->need[g].promised);
		}
		assert(found);
	}
}
