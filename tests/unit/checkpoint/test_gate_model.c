/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the gate: every interleaving of one pauser and one or two threads, of which each makes
 * calls without end. After any step of the first thread a signal handler may make a call, too, and
 * so may another one in that.
 *
 * Memory is that of x86 (TSO): the store of a mark waits in its thread's store buffer, and is seen
 * by the others at any later time, in order. A thread sees its own stores at once. Its depth is its
 * own, and the gate's flags are changed by locked instructions. Each step of the model is one
 * access of gate_enter(), gate_enter_slow(), gate_exit() or the pauser.
 *
 * At rest a call may be answered without entering. Its thread may then owe the driver a call
 * (gate_call_later()), which is in its depth too.
 *
 * In no state may the pauser hold the gate as quiet while a call is in the driver. A model that
 * finds no fault shows little, so the faults that the gate has had, or could have, are put in one
 * by one, and must be found.
 */
#include "tests/check_suite.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 2
#define FRAMES  3 /* of a thread: its call, a handler's, that of a handler in the handler */
#define BUFFER  3 /* stores */
#define STATES  (1u << 21)

enum step {
	BEGIN,  /* look at depth */
	NESTED, /* depth was there: look for the mark */
	NEST,
	MARK,
	LOOK, /* at the flags */
	DEPTH,
	CHECK, /* that the mark is there */
	SLOW,  /* gate_enter_slow(): depth = 0 */
	SLOW_UNMARK,
	SLOW_WAIT,
	SLOW_MARK,
	SLOW_FENCE,
	SLOW_LOOK,
	INSIDE, /* in the driver */
	LEAVE,
	UNMARK,
};

enum pauser { OPEN, CLOSE, FENCE, BARRIER, AWAIT = BARRIER + THREADS, QUIET = AWAIT + THREADS };

enum flag { CLOSED = 1, REFUSES = 2, FENCED = 4 };

/* How the pauser has marks seen. */
enum way { BY_MEMBARRIER, BY_FENCES, BY_FENCES_LATER };

enum fault {
	NONE,
	NO_BARRIER,
	NO_WAIT, /* for the stores of threads that entered before they were told to fence */
	NO_FENCE,
	LOOK_FIRST, /* at the flags, and mark then */
	NO_SECOND_LOOK,
	NO_CHECK,
	DEPTH_ALONE, /* is taken for being inside */
};

struct state {
	struct thread {
		uint32_t steps : 4 * FRAMES, frames : 2, depth : 3;
		uint32_t mark : 1, buffer : BUFFER, stores : 2, owes : 1;
	} threads[THREADS];
	uint32_t pauser : 4, flags : 3;
};

static enum way way;
static enum fault fault;
static unsigned int nthreads, nframes;

/* The states that were found, open addressing: all zeros is none. */
static struct state *found, *todo;
static size_t nfound, ntodo;
static unsigned int quiet, unseen, left_over;

static size_t hash(const struct state *s)
{
	uint64_t words[2] = {0};

	memcpy(words, s, sizeof(*s));
	return ((words[0] ^ words[1] * 0xff51afd7ed558ccdUL) * 0x9e3779b97f4a7c15UL) >> 40;
}

static enum step step_of(const struct thread *t, unsigned int frame)
{
	return t->steps >> 4 * frame & 15;
}

static void go_to(struct thread *t, enum step step)
{
	unsigned int shift = 4 * (t->frames - 1);

	t->steps = (t->steps & ~(15u << shift)) | (unsigned int)step << shift;
}

/* A handler returns into what it interrupted; the program makes its next call. */
static void end_call(struct thread *t)
{
	go_to(t, BEGIN);
	if (t->frames > 1)
		t->frames--;
}

/* As the thread itself sees it. */
static bool is_marked(const struct thread *t)
{
	return t->stores ? t->buffer >> (t->stores - 1) & 1 : t->mark;
}

static bool store_mark(struct thread *t, unsigned int mark)
{
	if (t->stores == BUFFER)
		return false;
	t->buffer |= mark << t->stores;
	t->stores++;
	return true;
}

static bool store_leaves(struct thread *t)
{
	if (!t->stores)
		return false;
	t->mark = t->buffer & 1;
	t->buffer >>= 1;
	t->stores--;
	return true;
}

static bool handler_comes(struct thread *t, unsigned int most)
{
	if (t->frames == most)
		return false;
	t->frames++;
	go_to(t, BEGIN);
	return true;
}

static enum step after_slow_look(unsigned int flags)
{
	if (flags & (CLOSED | REFUSES) && fault != NO_SECOND_LOOK)
		return SLOW;
	return DEPTH;
}

/* False: it cannot go on yet. */
static bool thread_steps(struct thread *t, unsigned int flags)
{
	switch (step_of(t, t->frames - 1)) {
	case BEGIN:
		go_to(t, t->owes ? SLOW : t->depth ? NESTED : fault == LOOK_FIRST ? LOOK : MARK);
		return true;
	case NESTED:
		go_to(t, is_marked(t) || fault == DEPTH_ALONE ? NEST : SLOW);
		return true;
	case NEST:
		t->depth++;
		go_to(t, INSIDE);
		return true;
	case MARK:
		go_to(t, fault == LOOK_FIRST ? DEPTH : LOOK);
		return store_mark(t, 1);
	case LOOK:
		go_to(t, flags ? SLOW : fault == LOOK_FIRST ? MARK : DEPTH);
		return true;
	case DEPTH:
		t->depth = 1;
		t->owes = 0;
		go_to(t, CHECK);
		return true;
	case CHECK:
		go_to(t, is_marked(t) || fault == NO_CHECK ? INSIDE : SLOW);
		return true;
	case SLOW:
		t->depth = 0;
		t->owes = 0;
		go_to(t, SLOW_UNMARK);
		return true;
	case SLOW_UNMARK:
		go_to(t, SLOW_WAIT);
		return store_mark(t, 0);
	case SLOW_WAIT:
		if (flags & REFUSES)
			end_call(t);
		else
			go_to(t, SLOW_MARK);
		return flags & REFUSES || !(flags & CLOSED);
	case SLOW_MARK:
		go_to(t, SLOW_FENCE);
		return store_mark(t, 1);
	case SLOW_FENCE:
		go_to(t, SLOW_LOOK);
		return !t->stores || fault == NO_FENCE;
	case SLOW_LOOK:
		go_to(t, after_slow_look(flags));
		return true;
	case INSIDE:
		go_to(t, LEAVE);
		return true;
	case LEAVE:
		if (--t->depth)
			end_call(t);
		else
			go_to(t, UNMARK);
		return true;
	case UNMARK:
		end_call(t);
		return store_mark(t, 0);
	}
	return false;
}

/* It waits, and is answered at rest. */
static bool is_answered(struct thread *t, unsigned int pauser)
{
	if (pauser != QUIET || step_of(t, t->frames - 1) != SLOW_WAIT)
		return false;
	t->owes = 1;
	end_call(t);
	return true;
}

/* @choice: at a quiet gate, open it, or refuse all callers for good. */
static bool pauser_steps(struct state *s, bool choice)
{
	unsigned int at = s->pauser;
	const struct thread *t = &s->threads[(at - BARRIER) % THREADS];

	if (choice) {
		s->flags |= REFUSES;
		return at == QUIET;
	}
	s->pauser++;
	if (at == OPEN) {
		s->flags |= CLOSED;
	} else if (at == CLOSE) {
		if (s->flags & FENCED || fault == NO_BARRIER)
			s->pauser = AWAIT;
	} else if (at == FENCE) {
		if (way == BY_FENCES_LATER)
			s->flags |= FENCED;
		if (fault == NO_WAIT)
			s->pauser = AWAIT;
	} else if (at < AWAIT) {
		return !t->stores;
	} else if (at < QUIET) {
		return !t->mark;
	} else {
		s->pauser = OPEN;
		s->flags &= ~CLOSED;
		return !(s->flags & REFUSES);
	}
	return true;
}

static void look_at(const struct state *s)
{
	quiet += s->pauser == QUIET;
	for (unsigned int i = 0; i < nthreads; i++) {
		const struct thread *t = &s->threads[i];

		for (unsigned int f = 0; f < t->frames; f++)
			unseen += s->pauser == QUIET && step_of(t, f) == INSIDE;
		/* Nothing stays behind that would keep a pause waiting for ever. */
		left_over += t->frames == 1 && step_of(t, 0) == BEGIN && (t->depth || is_marked(t));
	}
}

static void find(const struct state *s)
{
	size_t at = hash(s) % STATES;

	while (found[at].threads[0].frames) {
		if (!memcmp(&found[at], s, sizeof(*s)))
			return;
		at = (at + 1) % STATES;
	}
	ck_assert_uint_lt(++nfound, STATES / 2);
	found[at] = todo[ntodo++] = *s;
	look_at(s);
}

static void find_what_follows(const struct state *s)
{
	struct state next;

	for (unsigned int i = 0; i < nthreads; i++) {
		struct thread *t = &next.threads[i];

		next = *s;
		if (store_leaves(t))
			find(&next);
		next = *s;
		if (handler_comes(t, i ? 1 : nframes))
			find(&next);
		next = *s;
		if (thread_steps(t, s->flags))
			find(&next);
		next = *s;
		if (!i &&
		    is_answered(t, s->pauser)) /* one thread: else there are too many states */
			find(&next);
	}
	for (unsigned int choice = 0; choice < 2; choice++) {
		next = *s;
		if (pauser_steps(&next, choice))
			find(&next);
	}
}

static void explore(enum way by, enum fault with, unsigned int threads, unsigned int frames)
{
	struct state first;

	way = by;
	fault = with;
	nthreads = threads;
	nframes = frames;
	memset(&first, 0, sizeof(first));
	for (unsigned int i = 0; i < THREADS; i++)
		first.threads[i].frames = 1;
	first.flags = by == BY_FENCES ? FENCED : 0;
	found = calloc(STATES, sizeof(*found));
	todo = malloc(STATES / 2 * sizeof(*todo));
	ck_assert(found && todo);
	find(&first);
	while (ntodo) {
		struct state s = todo[--ntodo];

		find_what_follows(&s);
	}
	free(found);
	free(todo);
	ck_assert_uint_gt(quiet, 0);
}

static const struct {
	enum fault fault;
	enum way way;
	unsigned int frames;
} faults[] = {
	{NO_BARRIER, BY_MEMBARRIER, 1},     {NO_WAIT, BY_FENCES_LATER, 1},
	{NO_FENCE, BY_FENCES, 1},           {LOOK_FIRST, BY_MEMBARRIER, 1},
	{NO_SECOND_LOOK, BY_MEMBARRIER, 1}, {NO_SECOND_LOOK, BY_FENCES, 1},
	{NO_CHECK, BY_MEMBARRIER, 2},       {DEPTH_ALONE, BY_MEMBARRIER, 2},
};

/* Two threads, and one with handlers in handlers. */
START_TEST(no_call_is_unseen)
{
	explore(_i / 2, NONE, _i % 2 + 1, FRAMES - _i % 2);
	ck_assert_uint_eq(unseen, 0);
	ck_assert_uint_eq(left_over, 0);
}
END_TEST

START_TEST(each_fault_is_found)
{
	explore(faults[_i].way, faults[_i].fault, 1, faults[_i].frames);
	ck_assert_uint_gt(unseen, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *tc = tcase_create("model");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, no_call_is_unseen, 0, 2 * (BY_FENCES_LATER + 1));
	tcase_add_loop_test(tc, each_fault_is_found, 0, sizeof(faults) / sizeof(faults[0]));
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
