/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of how processes that share memory go on together (agree() and withdraw() in
 * checkpoint/sharing/stages.c): every interleaving of three of them. Each step of the model is one
 * question to another process, or one change of what a process answers. A process that has given up
 * may pause once more, while the others have not seen yet that it ran. At any time one of them may be lost,
 * so that it lives and cannot be asked, and found again; and it may end.
 *
 * With a pact (common/protocol/pact.h), of a resume, two of them share memory, and a third one, which shares nothing,
 * runs as soon as the pact says GO. One that has given up does not begin again there.
 *
 * In no state may one process have gone on, and another one run (in a resume: be paused again). A model that finds no
 * fault shows little, so the faults that the protocol could have are put in one by one, and must be found.
 */
#include "tests/check_suite.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES  3
#define STATE_BITS 23
#define STATES     (1u << STATE_BITS)

/*
 * What a process answers. Before the stage, and behind it: it runs, or has gone on, or is no more. WHOLE: OFF, until
 * the pact says GO.
 */
enum says { EARLY, WAITS, ON, OFF, RUNS, PASSED, ENDED, WHOLE };

enum step {
	MEET, /* in the second pause: ask the next one whether it rests, and in which pause */
	BEFORE,
	LOOK,   /* ask the next one */
	DECIDE, /* what to say after all have answered */
	GIVE_UP,
	ASK,    /* the next one, whether it has gone on */
	RETURN, /* or stay */
	MATE,   /* whether the one that shares memory is whole */
	AGREE,  /* to the pact, and wait for the others */
	END,
};

/* What the others have answered, so far. */
enum verdict { ALL, NOT_YET, WITHDREW };

enum fault {
	NONE,
	ONE_LOOK,      /* go on when all have come, without saying so and asking again */
	NO_ASKING,     /* give up without asking who has gone on */
	ASK_FIRST,     /* before saying so */
	OLD_PAUSE,     /* take one that pauses again for one that has not gone on */
	LOST_IS_ENDED, /* take one that cannot be asked for one that has ended */
	LOST_IS_EARLY, /* take one that cannot be asked for one that has not gone on */
	LEFT_AFTER_GO, /* give up when the pact has said GO */
	FAULTS,
};

#define FRAIL 0 /* the process that may be lost, or end */

struct process {
	uint8_t says, step, next, verdict, on, may;
	uint8_t heard;                /* FRAIL has asked it for the last time */
	uint8_t again;                /* it is in its second pause */
	uint8_t known[PROCESSES - 1]; /* @again of the others, when it met them */
};

enum pact { NO_PACT, OPEN, GO, STOP };

struct state {
	struct process p[PROCESSES];
	bool lost; /* FRAIL */
	uint8_t pact;
	uint8_t agree; /* a bit for each that has agreed to it */
};

#define AGREE_ALL ((1 << PROCESSES) - 1)

static enum fault fault;
static int nothers; /* that share memory with one */
static struct state *todo;
static uint64_t *found;
static size_t ntodo, nfound;
static bool torn, all_passed, all_run;

static uint64_t pack(const struct state *s)
{
	uint64_t bits = (2 | s->lost) << 5 | s->pact << 3 | s->agree;

	for (int i = 0; i < PROCESSES; i++) {
		const struct process *p = &s->p[i];

		bits = bits << 3 | p->says;
		bits = bits << 4 | p->step;
		bits = bits << 2 | p->next;
		bits = bits << 2 | p->verdict;
		bits = bits << 4 | p->heard << 3 | p->on << 2 | p->may << 1 | p->again;
		bits = bits << 2 | p->known[0] << 1 | p->known[1];
	}
	return bits;
}

static int count(const struct state *s, enum says says)
{
	int n = 0;

	for (int i = 0; i < PROCESSES; i++)
		n += s->p[i].says == says;
	return n;
}

static void find(const struct state *s)
{
	uint64_t bits = pack(s);
	size_t at = bits * 0x9e3779b97f4a7c15UL >> (64 - STATE_BITS);

	while (found[at] && found[at] != bits)
		at = (at + 1) % STATES;
	if (found[at])
		return;
	found[at] = bits;
	ck_assert_uint_lt(++nfound, STATES / 2);
	todo[ntodo++] = *s;
	torn |= count(s, PASSED) && count(s, RUNS);
	all_passed |= count(s, PASSED) == PROCESSES;
	all_run |= count(s, RUNS) == PROCESSES;
}

static void go(const struct state *s, int i, struct process p)
{
	struct state next = *s;

	next.p[i] = p;
	find(&next);
}

static struct process at(struct process p, enum step step)
{
	p.step = step;
	p.next = 0;
	p.verdict = ALL;
	p.may = 1;
	p.heard &= step != END;
	return p;
}

/* The number of the @next one beside @i. */
static int other(int i, int next)
{
	return next < i ? next : next + 1;
}

enum reach { ANSWERS, SILENT, GONE };

/* What comes of asking the @next one beside @i. */
static enum reach reach(const struct state *s, int i, int next)
{
	if (s->p[other(i, next)].says == ENDED)
		return GONE;
	if (!s->lost || other(i, next) != FRAIL)
		return ANSWERS;
	return fault == LOST_IS_ENDED ? GONE : SILENT;
}

static void meet(const struct state *s, int i, struct process p)
{
	const struct process *q = &s->p[other(i, p.next)];

	if (reach(s, i, p.next) == SILENT || q->says == RUNS || q->says == PASSED) {
		p.says = RUNS;
		go(s, i, at(p, END));
		return;
	}
	p.known[p.next] = q->again;
	if (++p.next == nothers)
		p.step = BEFORE;
	go(s, i, p);
}

static bool has_passed(const struct process *q, bool known)
{
	return (q->says == ON || q->says == PASSED) && (known || fault != OLD_PAUSE);
}

static void look(const struct state *s, int i, struct process p)
{
	const struct process *q = &s->p[other(i, p.next)];
	bool known = q->again == p.known[p.next];
	enum reach is = reach(s, i, p.next);
	enum verdict verdict = is == SILENT                                             ? NOT_YET
			       : is == GONE                                             ? ALL
			       : has_passed(q, known)                                   ? ALL
			       : q->says == RUNS || !known                              ? WITHDREW
			       : q->says == EARLY || q->says == OFF || q->says == WHOLE ? NOT_YET
											: ALL;
	struct state next = *s;

	if (i == FRAIL && p.on && is == ANSWERS && (q->says == WAITS || q->says == ON))
		next.p[other(i, p.next)].heard = 1;
	if (verdict > p.verdict)
		p.verdict = verdict;
	if (++p.next == nothers)
		p.step = DECIDE;
	go(&next, i, p);
}

static void decide(const struct state *s, int i, struct process p)
{
	enum verdict verdict = p.verdict;

	if (verdict == ALL && (p.on || fault == ONE_LOOK)) {
		p.says = PASSED;
		go(s, i, at(p, END));
		return;
	}
	p.on = verdict == ALL;
	p.says = p.on ? ON : WAITS;
	/* It may be told at any time to give up, or find that it is late. */
	if (verdict != WITHDREW)
		go(s, i, at(p, LOOK));
	if (verdict != ALL && (!s->pact || fault == LEFT_AFTER_GO))
		go(s, i, at(p, fault == ASK_FIRST ? ASK : GIVE_UP));
}

/* The last one shares nothing. */
static bool shares(const struct state *s, int i)
{
	return !s->pact || i < PROCESSES - 1;
}

/* It gives up, and then the pact ends: or the other way round, if it has agreed. */
static void leave(const struct state *s, int i, struct process p)
{
	struct state next = *s;

	p.says = RUNS;
	if (next.pact == OPEN)
		next.pact = STOP;
	go(&next, i, at(p, END));
}

static void mate(const struct state *s, int i, struct process p)
{
	struct state next = *s;

	leave(s, i, p);
	if (shares(s, i) && (reach(s, i, 0) == SILENT ||
			     (reach(s, i, 0) == ANSWERS && s->p[other(i, 0)].says != WHOLE)))
		return;
	next.agree |= 1 << i;
	go(&next, i, at(p, AGREE));
}

static void agree(const struct state *s, int i, struct process p)
{
	struct state next = *s;

	if (s->pact == GO) {
		p.says = shares(s, i) ? WAITS : PASSED;
		go(s, i, at(p, shares(s, i) ? LOOK : END));
		return;
	}
	leave(s, i, p);
	if (s->pact == OPEN && s->agree == AGREE_ALL) {
		next.pact = GO;
		find(&next);
	}
}

static void ask(const struct state *s, int i, struct process p)
{
	const struct process *q = &s->p[other(i, p.next)];
	enum reach is = reach(s, i, p.next);

	p.may &= fault == NO_ASKING || is == GONE ||
		 (is == SILENT && (!p.heard || fault == LOST_IS_EARLY)) ||
		 (is == ANSWERS && !has_passed(q, q->again == p.known[p.next]));
	if (++p.next == nothers)
		p.step = RETURN;
	go(s, i, p);
}

static void follow(const struct state *s, int i)
{
	struct process p = s->p[i];

	if (p.says == ENDED)
		return;
	switch ((enum step)p.step) {
	case MEET:
		meet(s, i, p);
		break;
	case BEFORE:
		p.says = s->pact ? WHOLE : WAITS;
		p.heard = 0;
		go(s, i, at(p, s->pact ? MATE : LOOK));
		if (s->pact)
			break;
		p.says = RUNS;
		go(s, i, at(p, END));
		break;
	case LOOK:
		look(s, i, p);
		break;
	case DECIDE:
		decide(s, i, p);
		break;
	case GIVE_UP:
		p.says = OFF;
		go(s, i, at(p, ASK));
		break;
	case ASK:
		ask(s, i, p);
		break;
	case RETURN:
		p.says = p.may ? RUNS : WAITS;
		p.on = 0;
		go(s, i, at(p, p.may ? END : LOOK));
		break;
	case MATE:
		mate(s, i, p);
		break;
	case AGREE:
		agree(s, i, p);
		break;
	case END:
		if (p.says == PASSED || p.again || s->pact)
			break;
		p.says = EARLY;
		p.again = 1;
		go(s, i, at(p, MEET));
		break;
	}
}

static void lose_or_end(const struct state *s)
{
	struct state next = *s;
	struct process p = s->p[FRAIL];

	if (p.says == ENDED)
		return;
	next.lost = !s->lost;
	find(&next);
	p.says = ENDED;
	go(s, FRAIL, at(p, END));
}

static void explore(enum fault with, enum pact pact)
{
	struct state first = {.pact = pact};

	fault = with;
	nothers = pact ? 1 : PROCESSES - 1;
	found = calloc(STATES, sizeof(*found));
	todo = malloc(STATES / 2 * sizeof(*todo));
	ck_assert(found && todo);
	for (int i = 0; i < PROCESSES; i++)
		first.p[i] = at(first.p[i], BEFORE);
	find(&first);
	while (ntodo) {
		struct state s = todo[--ntodo];

		for (int i = 0; i < PROCESSES; i++)
			follow(&s, i);
		lose_or_end(&s);
	}
	free(found);
	free(todo);
	ck_assert(all_passed && all_run);
}

START_TEST(all_go_on_or_none)
{
	explore(NONE, NO_PACT);
	ck_assert(!torn);
}
END_TEST

START_TEST(all_go_on_or_none_with_one_that_shares_nothing)
{
	explore(NONE, OPEN);
	ck_assert(!torn);
}
END_TEST

START_TEST(each_fault_is_found)
{
	explore(ONE_LOOK + _i, ONE_LOOK + _i == LEFT_AFTER_GO ? OPEN : NO_PACT);
	ck_assert(torn);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sharing");
	TCase *tc = tcase_create("model");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, all_go_on_or_none);
	tcase_add_test(tc, all_go_on_or_none_with_one_that_shares_nothing);
	tcase_add_loop_test(tc, each_fault_is_found, 0, FAULTS - ONE_LOOK);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
