/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/party/reach.h"
#include "common/protocol/lines.h"

#include <errno.h>
#include <stdio.h>

/*
 * How long all may have met their targets without all GPUs being idle, until the next way; they may
 * just have much to do. By the way that has not helped.
 */
static const struct {
	double ms;
	int part; /* of the time since the beginning; 0: none of it */
} patience[REACH_WAYS] = {{30, 4}, {200, 4}, {1000, 2}};

#define STILL_MS 5000 /* a rank comes no nearer to one of its targets */

/* No more than a CPU is ahead of another; and than pairs of a pipeline differ by. */
#define ARE_NEAR(least, most)  ((most) - (least) <= 1024 + (most) / 8)
#define ARE_ALIKE(least, most) ((most) - (least) <= 8 + (most) / 8)

void reach_begin(struct reach *reach, struct reach_rank *ranks, size_t n, double now_ms)
{
	*reach = (struct reach){.ranks = ranks, .n = n, .begin_ms = now_ms, .change_ms = now_ms};
	for (size_t i = 0; i < n; i++)
		ranks[i] = (struct reach_rank){0};
}

static struct reach_comm *find(struct reach_rank *r, uint32_t id)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->comms[i].id == id)
			return &r->comms[i];
	return NULL;
}

static void find_places(const struct reach_rank *r, struct reach_comm *c)
{
	for (const struct reach_comm *other = r->comms; other < c; other++) {
		c->place += other->some == c->some;
		c->sized += other->some == c->some && other->size == c->size;
	}
}

/* "ID:SIZE:COUNT[:RANK][s]" at *@text, which is moved behind it. False: it is malformed. */
static bool read_comm(const char **text, struct reach_comm *c)
{
	uint64_t parts[3], rank;

	if (!line_numbers(text, INT64_MAX, parts, 3) || parts[0] > UINT32_MAX ||
	    parts[1] > UINT32_MAX)
		return false;
	*c = (struct reach_comm){.id = parts[0], .size = parts[1], .made = parts[2], .rank = -1};
	if (**text == ':') {
		(*text)++;
		if (!line_numbers(text, UINT32_MAX, &rank, 1))
			return false;
		c->rank = (int64_t)rank;
	}
	c->some = **text == 's';
	*text += c->some;
	return true;
}

int reach_take_comms(struct reach *reach, size_t rank, const char *comms, double now_ms)
{
	struct reach_rank *r = &reach->ranks[rank], before = *r;

	reach->stale = true;
	r->told = true;
	for (r->n = 0; *comms; comms += *comms == ' ') {
		struct reach_comm *c = &r->comms[r->n], *old;

		if (r->n == REACH_COMMS || !read_comm(&comms, c))
			return -EBADMSG;
		if (c->size == 1)
			continue; /* it waits for nobody */
		r->n++;
		find_places(r, c);
		old = find(&before, c->id);
		if (old) {
			c->aimed = old->aimed;
			c->target = old->target;
			c->moved_ms = old->moved_ms;
		}
		if (!old || old->made != c->made)
			reach->change_ms = c->moved_ms = now_ms;
	}
	return 0;
}

bool reach_take_held(struct reach *reach, size_t rank, uint32_t number, double now_ms)
{
	struct reach_rank *r = &reach->ranks[rank];

	if (!r->told && r->n) {
		r->n = 0;
		reach->stale = true;
	}
	r->told = false;
	if (number < r->number)
		return false;
	reach->change_ms = now_ms;
	return true;
}

struct group {
	const struct reach *reach;
	const struct reach_comm *c;
	enum reach_way way;
};

static bool is_alike(const struct reach_comm *c, const struct reach_comm *d)
{
	return d->some == c->some && (!c->size || !d->size || d->size == c->size);
}

static bool is_world(const struct reach *reach, const struct reach_comm *c)
{
	return c->size == reach->n && !c->some;
}

/* True if @d is taken for the same communicator as @k, or for one of its like. */
static bool belongs(const struct group *k, const struct reach_comm *d)
{
	if (!is_alike(k->c, d))
		return false;
	switch (k->way) {
	case REACH_PLACE:
		return d->place == k->c->place;
	case REACH_SIZE:
		return true;
	default:
		return is_world(k->reach, k->c) && is_world(k->reach, d) && d->sized == k->c->sized;
	}
}

/* What the ranks that are not at rest for good say of a group. */
struct tally {
	size_t all, ranks;    /* these ranks, and those of them that have members */
	uint64_t least, most; /* launches */
	uint64_t target;      /* the largest that one has */
};

static struct tally tally_of(const struct group *k, const struct steps *steps)
{
	struct tally t = {.least = UINT64_MAX};

	for (size_t i = 0; i < k->reach->n; i++) {
		const struct reach_rank *r = &k->reach->ranks[i];
		bool any = false;

		if (steps->ranks[i].left)
			continue;
		t.all++;
		for (const struct reach_comm *d = r->comms; d < r->comms + r->n; d++) {
			if (!belongs(k, d))
				continue;
			any = true;
			t.least = d->made < t.least ? d->made : t.least;
			t.most = d->made > t.most ? d->made : t.most;
			if (d->aimed && d->target > t.target)
				t.target = d->target;
		}
		t.ranks += any;
	}
	return t;
}

/*
 * True if the group has a target: not if it has no partner or the counts are far apart. Which ranks belong to
 * the world is known, so all of them have to be there.
 */
static bool has_target(const struct group *k, const struct tally *t)
{
	if (t->ranks < (k->way == REACH_WORLD ? t->all : 2))
		return false;
	/* Stages of a pipeline that share a communicator send and receive unlike often. */
	return k->way == REACH_SIZE || k->c->some ? ARE_ALIKE(t->least, t->most)
						  : ARE_NEAR(t->least, t->most);
}

/*
 * True if more than half of those that belong to @c by their places have its rank: a rank has its partners
 * among the others, so not all of them have theirs in the group. Ranks that left may be such partners, too.
 */
static bool is_mixed(const struct reach *reach, const struct steps *steps,
		     const struct reach_comm *c)
{
	const struct group k = {reach, c, REACH_PLACE};
	size_t members = 0, same = 0;

	for (size_t i = 0; i < reach->n; i++) {
		const struct reach_rank *r = &reach->ranks[i];

		members += steps->ranks[i].left && !r->n;
		for (const struct reach_comm *d = r->comms; d < r->comms + r->n; d++) {
			if (!belongs(&k, d))
				continue;
			members++;
			same += d->rank >= 0 && d->rank == c->rank;
		}
	}
	return same > 1 && 2 * same > members;
}

static void find_mixed(struct reach *reach, const struct steps *steps)
{
	for (size_t i = 0; i < reach->n; i++) {
		struct reach_rank *r = &reach->ranks[i];

		for (struct reach_comm *c = r->comms; c < r->comms + r->n; c++)
			c->mixed = is_mixed(reach, steps, c);
	}
}

/* By the ranks, the places of some of its like take several communicators for one: those of all are no guide. */
static enum reach_way way_of(const struct reach *reach, const struct reach_comm *c)
{
	if (reach->way != REACH_PLACE)
		return reach->way;
	for (size_t i = 0; i < reach->n; i++) {
		const struct reach_rank *r = &reach->ranks[i];

		for (const struct reach_comm *d = r->comms; d < r->comms + r->n; d++)
			if (d->mixed && is_alike(c, d))
				return REACH_SIZE;
	}
	return REACH_PLACE;
}

/* Launches are missing. */
static bool lacks(const struct reach_comm *c)
{
	return c->aimed && c->made < c->target;
}

/* Set the targets of all. */
static void aim(struct reach *reach, const struct steps *steps, double now_ms)
{
	reach->stale = reach->apart = reach->world = false;
	find_mixed(reach, steps);
	for (size_t i = 0; i < reach->n; i++) {
		struct reach_rank *r = &reach->ranks[i];

		for (struct reach_comm *c = r->comms; c < r->comms + r->n; c++) {
			const struct group k = {reach, c, way_of(reach, c)};
			struct tally t = tally_of(&k, steps);
			uint64_t target = t.most > t.target ? t.most : t.target;
			bool was_short = lacks(c);

			reach->world |= is_world(reach, c);
			if (!has_target(&k, &t)) {
				reach->apart |= c->some && t.ranks > 1;
				c->aimed = false;
				continue;
			}
			r->fresh |= !c->aimed || c->target != target;
			c->aimed = true;
			c->target = target;
			if (!was_short)
				c->moved_ms = now_ms;
		}
	}
}

/* False: there is no communicator for @way. */
static bool begin_way(struct reach *reach, enum reach_way way, double now_ms)
{
	bool any = way != REACH_WORLD;

	reach->way = way;
	reach->stale = true;
	reach->change_ms = now_ms;
	for (size_t i = 0; i < reach->n; i++) {
		struct reach_rank *r = &reach->ranks[i];

		for (struct reach_comm *c = r->comms; c < r->comms + r->n; c++) {
			c->aimed = way == REACH_WORLD && is_world(reach, c);
			c->target = c->made + 1;
			c->moved_ms = now_ms;
			any |= c->aimed;
		}
	}
	return any;
}

/* True if another way than REACH_PLACE may differ from it. */
static bool has_other_ways(const struct reach *reach)
{
	for (size_t i = 0; i < reach->n; i++) {
		const struct reach_rank *r = &reach->ranks[i];

		/* The size of the only one may not be known yet. */
		if (r->n > 1 || (r->n && r->comms[0].size && r->comms[0].size < reach->n))
			return true;
	}
	return false;
}

static bool is_short(const struct reach_rank *r)
{
	for (const struct reach_comm *c = r->comms; c < r->comms + r->n; c++)
		if (lacks(c))
			return true;
	return false;
}

/* A rank on its way has not come nearer to one of its targets for long. */
static bool any_is_still(const struct reach *reach, const struct steps *steps, double now_ms)
{
	for (size_t i = 0; i < reach->n; i++) {
		const struct reach_rank *r = &reach->ranks[i];

		if (!steps->ranks[i].asked)
			continue;
		for (const struct reach_comm *c = r->comms; c < r->comms + r->n; c++)
			if (lacks(c) && now_ms - c->moved_ms >= STILL_MS)
				return true;
	}
	return false;
}

/* True if targets make sense at all. */
static bool are_known(const struct reach *reach)
{
	size_t ranks = 0, comms = 0;

	for (size_t i = 0; i < reach->n; i++) {
		ranks += reach->ranks[i].n > 0;
		comms += reach->ranks[i].n;
	}
	return ranks > 1 && comms <= REACH_MOST;
}

/* Order the ranks that have not met their targets, unless they have these orders. */
static bool order(struct reach *reach, struct steps *steps)
{
	bool any = false;

	for (size_t i = 0; i < reach->n; i++) {
		struct reach_rank *r = &reach->ranks[i];

		r->ordered = !steps->ranks[i].left && is_short(r) &&
			     (r->fresh || !steps->ranks[i].asked);
		r->fresh = false;
		if (!r->ordered)
			continue;
		r->number++;
		steps->ranks[i].asked = true;
		any = true;
	}
	return any;
}

/*
 * Tell @steps the launches that not all ranks make. No way has a target for them all: the ranks may
 * be stages of a pipeline.
 */
static void hand_over(const struct reach *reach, struct steps *steps, double now_ms)
{
	size_t pairing = 0;

	for (size_t i = 0; i < reach->n; i++) {
		const struct reach_rank *r = &reach->ranks[i];

		for (const struct reach_comm *c = r->comms; c < r->comms + r->n; c++)
			if (c->some)
				steps->ranks[i].launches += c->made;
		pairing += steps->ranks[i].launches > 0;
	}
	if (pairing > 1)
		steps_begin_waves(steps, now_ms);
}

/* Order the ranks on their way to their targets to stop, and to answer. */
static void stop(struct reach *reach, const struct steps *steps)
{
	for (size_t i = 0; i < reach->n; i++) {
		struct reach_rank *r = &reach->ranks[i];

		for (struct reach_comm *c = r->comms; c < r->comms + r->n; c++)
			c->aimed = false;
		r->ordered = r->number && steps->ranks[i].asked;
		r->number += r->ordered;
	}
}

static bool any_asked(const struct steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		if (steps->ranks[i].asked)
			return true;
	return false;
}

static bool any_aimed(const struct reach *reach)
{
	for (size_t i = 0; i < reach->n; i++)
		for (size_t k = 0; k < reach->ranks[i].n; k++)
			if (reach->ranks[i].comms[k].aimed)
				return true;
	return false;
}

/* All have met their targets, and not all GPUs are idle. False: no way is left. */
static bool try_next_way(struct reach *reach, double now_ms)
{
	enum reach_way last = has_other_ways(reach) ? reach->way : REACH_WAYS - 1;
	double wait_ms = patience[last].ms;

	if (!any_aimed(reach))
		wait_ms = 0;
	else if (patience[last].part)
		wait_ms += (now_ms - reach->begin_ms) / patience[last].part;
	if (now_ms - reach->change_ms < wait_ms)
		return true;
	/* Kernels without a target wait, probably. The next launch of all ends that, and no guess does. */
	if (reach->apart && reach->world)
		return begin_way(reach, REACH_WORLD, now_ms);
	return last + 1 < REACH_WAYS && begin_way(reach, last + 1, now_ms);
}

enum reach_verdict reach_next(struct reach *reach, struct steps *steps, double now_ms)
{
	bool asked = any_asked(steps), goes_on;

	if (reach->way == REACH_WAYS)
		return REACH_OVER;
	if (!reach->begun && asked)
		return REACH_WAIT;
	if (!reach->begun) {
		reach->begun = true;
		begin_way(reach, REACH_PLACE, now_ms);
	}
	if (reach->stale)
		aim(reach, steps, now_ms);
	if (!are_known(reach) || any_is_still(reach, steps, now_ms))
		goes_on = false;
	else if (order(reach, steps))
		return REACH_GO;
	else
		goes_on = asked || try_next_way(reach, now_ms);
	if (goes_on)
		return REACH_WAIT;
	reach->way = REACH_WAYS;
	hand_over(reach, steps, now_ms);
	stop(reach, steps);
	return REACH_OVER;
}

void reach_write(const struct reach *reach, size_t rank, char text[static REACH_TEXT])
{
	const struct reach_rank *r = &reach->ranks[rank];
	size_t len = snprintf(text, REACH_TEXT, "reach %u", r->number), bare = len;

	for (const struct reach_comm *c = r->comms; c < r->comms + r->n && len < REACH_TEXT; c++)
		if (c->aimed)
			len += snprintf(text + len, REACH_TEXT - len, " %u:%llu", c->id,
					(unsigned long long)c->target);
	/* A target that is met already. */
	if (len == bare)
		snprintf(text + len, REACH_TEXT - len, " 1:0");
}
