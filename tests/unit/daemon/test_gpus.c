/* SPDX-License-Identifier: Apache-2.0 */
/* What members may have of a GPU together, by what NVML says and what they say. */
#include "tools/daemon/gpus.h"
#include "tools/daemon/rules.h"
#include "tools/daemon/sampler.h"
#include "tools/daemon/turns/turns.h"

#include "tests/check_suite.h"

#include <stdio.h>
#include <string.h>

#define UUID   "GPU-1"
#define TOTAL  1000
#define MARGIN 100
#define MOST   (TOTAL - MARGIN)

static struct sample answer;
static bool has_answer, shared;
static long mapped;
static double now;

double rules_value(enum conf_key key)
{
	return key == CONF_MARGIN ? MARGIN : 0;
}

bool rules_has_turns(const char *uuid)
{
	(void)uuid;
	return shared;
}

static int asked;          /* how often NVML was */
static int asked_of_first; /* of that for UUID */

int sampler_ask(const char *uuid)
{
	asked++;
	asked_of_first += !strcmp(uuid, UUID);
	return 0;
}

int sampler_take(struct sample *sample)
{
	bool had = has_answer;

	*sample = answer;
	has_answer = false;
	return had;
}

/* Samples that members were told of. */
static int nshown;
static double shown_asked; /* when NVML was asked for the last one */
static int asked_after;    /* how many those were when members were asked what they have */

static long mapped_on(int gpu, double since)
{
	(void)gpu;
	(void)since;
	asked_after = nshown;
	return mapped;
}

static bool some_use_it = true;

static bool is_used(int gpu)
{
	(void)gpu;
	return some_use_it;
}

static void end_users(int gpu)
{
	(void)gpu;
	ck_abort_msg("nobody is to make way");
}

static void take_shown(int gpu, const struct sample *sample, double asked_ms, double at)
{
	(void)gpu;
	(void)at;
	shown_asked = asked_ms;
	ck_assert_uint_eq(sample->total, TOTAL);
	nshown++;
}

static const struct daemon_gpu *begin(double began_ms)
{
	const struct gpus_users users = {
		.shown = take_shown, .mapped = mapped_on, .used = is_used, .end = end_users};

	shared = true;
	now = began_ms;
	gpus_init(&users, began_ms);
	ck_assert_int_eq(gpus_find(UUID), 0);
	return gpus_get(0);
}

static void answers(const char *uuid, size_t total, size_t free)
{
	answer = (struct sample){.total = total, .free = free};
	snprintf(answer.uuid, sizeof(answer.uuid), "%s", uuid);
	has_answer = true;
	gpus_take(now);
}

/* For @ms NVML says four times a second that so much is @used, of which members say @has. */
static void pass(double ms, size_t used, long has)
{
	mapped = has;
	for (double end = now + ms; now < end; now += 250)
		answers(UUID, TOTAL, TOTAL - used);
}

START_TEST(memory_of_others_counts_when_it_has_lasted)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	pass(250, 500, 100);
	ck_assert_uint_eq(gpu->capacity, 500);
	ck_assert_uint_eq(gpu->most, MOST);
	pass(2000, 500, 100);
	ck_assert_uint_eq(gpu->most, MOST);
	pass(3000, 500, 100);
	ck_assert_uint_eq(gpu->most, 500);
	/* It goes: that counts at once. */
	pass(250, 200, 100);
	ck_assert_uint_eq(gpu->most, 800);
}
END_TEST

/* A context that was out is back: it does not count as gone for as long as it was. */
START_TEST(a_context_that_comes_back_counts_at_once)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	pass(10000, 500, 300);
	ck_assert_uint_eq(gpu->lasts, 200);
	pass(250, 400, 300);
	ck_assert_uint_eq(gpu->lasts, 100);
	gpus_context_back(0, 100, now);
	ck_assert_uint_eq(gpu->lasts, 200);
	pass(10000, 500, 300);
	ck_assert_uint_eq(gpu->lasts, 200);
}
END_TEST

/* What jobs say is a second old. */
START_TEST(members_that_grow_are_not_others)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	pass(10000, 100, 100);
	for (int i = 1; i <= 8; i++) {
		pass(1000, 100 + i * 100, i * 100);
		ck_assert_uint_eq(gpu->most, MOST);
	}
}
END_TEST

/* The driver frees its memory, or it has lost its connection and joins again. */
START_TEST(what_a_member_had_that_has_left)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	pass(10000, 700, 700);
	gpus_leave(0, 400, 700, now);
	ck_assert_uint_eq(gpu->capacity, MOST - 400);
	ck_assert_uint_eq(gpu->most, MOST);
	pass(9000, 700, 300);
	ck_assert_uint_eq(gpu->capacity, MOST - 400);
	ck_assert_uint_eq(gpu->most, MOST);
	pass(3000, 700, 300);
	ck_assert_uint_eq(gpu->most, MOST - 400);
}
END_TEST

START_TEST(members_of_an_earlier_daemon_may_join)
{
	const struct daemon_gpu *gpu = begin(60000);

	pass(9500, 500, 0);
	ck_assert_uint_eq(gpu->most, MOST);
	pass(1000, 500, 0);
	ck_assert_uint_eq(gpu->most, 500 - MARGIN);
}
END_TEST

START_TEST(while_memory_moves_nobody_knows_whose_it_is)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	pass(10000, 500, 100);
	ck_assert_uint_eq(gpu->most, 500);
	pass(6000, 500, -1);
	ck_assert_uint_eq(gpu->most, MOST);
	ck_assert_uint_eq(gpu->capacity, 500);
}
END_TEST

/* What members have may move at any time, so that the least of what is used says nothing of others. */
START_TEST(what_others_had_while_members_took_turns)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	pass(10000, 300, 300);
	ck_assert_uint_eq(gpu->lasts, 0);
	for (int i = 0; i < 3; i++) {
		pass(500, 600, 400);
		pass(500, 300, 100);
	}
	ck_assert_uint_eq(gpu->lasts, 0);
	for (int i = 0; i < 3; i++) {
		pass(500, 600, 400);
		pass(500, 300, 100);
	}
	ck_assert_uint_eq(gpu->lasts, 200);
	ck_assert_uint_eq(gpu->most, MOST);
	/* One has ended, and the driver frees its memory a little later. */
	gpus_leave(0, 100, 100, now);
	pass(1000, 300, 0);
	ck_assert_uint_eq(gpu->lasts, 200);
	pass(250, 200, 0);
	ck_assert_uint_eq(gpu->lasts, 200);
	pass(250, 0, 0);
	ck_assert_uint_eq(gpu->lasts, 0);
}
END_TEST

START_TEST(an_old_sample_is_not_fresh)
{
	begin(0);
	now = 60000;
	gpus_sample(0, now);
	ck_assert(!gpus_is_fresh(0, now));
	pass(250, 300, 100);
	ck_assert(gpus_is_fresh(0, now));
	ck_assert(gpus_is_fresh(0, now + 700));
	now += 10000;
	ck_assert(!gpus_is_fresh(0, now));
	/* NVML hangs. */
	gpus_sample(0, now);
	ck_assert(!gpus_is_fresh(0, now + 500));
	ck_assert(gpus_is_fresh(0, now + GPUS_PATIENCE_MS));
}
END_TEST

/* It bounds what they say they have. */
START_TEST(members_are_told_of_a_sample_first)
{
	begin(0);
	now = 60000;
	asked_after = 0;
	gpus_sample(0, now);
	now += 4000;
	pass(250, 300, 100);
	ck_assert_double_eq(shown_asked, 60000);
	ck_assert_int_eq(nshown, 1);
	ck_assert_int_eq(asked_after, 1);
	/* NVML does not know the GPU. */
	answers(UUID, 0, 0);
	ck_assert_int_eq(nshown, 1);
}
END_TEST

/* NVML may have looked before it had its memory. */
START_TEST(one_that_joins_while_nvml_is_asked)
{
	begin(0);
	now = 60000;
	gpus_sample(0, now);
	ck_assert_int_eq(asked, 1);
	gpus_sample_anew(now);
	ck_assert_int_eq(asked, 1);
	pass(250, 500, 100);
	ck_assert_int_eq(asked, 2);
	ck_assert(!gpus_are_settled(now));
	/* As often as it joins: then decisions go on. */
	gpus_sample_anew(now);
	pass(250, 500, 100);
	ck_assert_int_eq(asked, 2);
	ck_assert(gpus_are_settled(now));
	gpus_sample_anew(now);
	ck_assert_int_eq(asked, 3);
	gpus_sample_anew(now);
	pass(250, 500, 100);
	ck_assert_int_eq(asked, 4);
}
END_TEST

static void answer_all(void)
{
	answers(UUID, TOTAL, TOTAL - 300);
	for (int i = 1; gpus_get(i); i++)
		answers(gpus_get(i)->uuid, 0, 0);
}

/* For @ms somebody names new ones, of which NVML tells at once. Returns for how long decisions were held up. */
static double name_new_ones(double ms)
{
	static int number;
	double held_up = 0;
	char uuid[32];

	some_use_it = false;
	for (double end = now + ms; now < end; now += 10) {
		snprintf(uuid, sizeof(uuid), "GPU-new-%d", number++);
		ck_assert_int_ge(gpus_find(uuid), 0);
		gpus_sample(1e9, now);
		held_up += gpus_are_settled(now) ? 0 : 10;
		gpus_sample(250, now);
		answer_all();
	}
	return held_up;
}

START_TEST(new_ones_hold_up_nobody_for_long)
{
	begin(0);
	now = 60000;
	gpus_sample(0, now);
	answer_all();
	ck_assert(gpus_are_settled(now));
	ck_assert_double_gt(name_new_ones(1000), 500);
	ck_assert_double_le(name_new_ones(60000), GPUS_PATIENCE_MS);
	ck_assert_int_gt(asked_of_first, 200);
	/* Later there is time for that again. */
	for (double end = now + 60000; now < end; now += 250) {
		gpus_sample(250, now);
		answer_all();
		ck_assert(gpus_are_settled(now));
	}
	ck_assert_double_gt(name_new_ones(1000), 500);
}
END_TEST

START_TEST(where_nobody_takes_turns)
{
	const struct daemon_gpu *gpu = begin(0);

	now = 60000;
	ck_assert_uint_eq(gpu->capacity, TURNS_NO_LIMIT);
	ck_assert_uint_eq(gpu->most, 0);
	answers(UUID, 0, 0);
	ck_assert(gpu->unknown);
	ck_assert_uint_eq(gpu->most, 0);
	pass(250, 0, -1); /* of its first sample it is not known whose memory it is */
	ck_assert_uint_eq(gpu->capacity, TURNS_NO_LIMIT);
	ck_assert_uint_eq(gpu->most, TURNS_NO_LIMIT);
	shared = false;
	pass(250, 0, 0);
	ck_assert_uint_eq(gpu->capacity, TURNS_NO_LIMIT);
	ck_assert_uint_eq(gpu->most, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpus");
	TCase *cases = tcase_create("gpus");

	tcase_add_test(cases, memory_of_others_counts_when_it_has_lasted);
	tcase_add_test(cases, a_context_that_comes_back_counts_at_once);
	tcase_add_test(cases, members_that_grow_are_not_others);
	tcase_add_test(cases, what_a_member_had_that_has_left);
	tcase_add_test(cases, members_of_an_earlier_daemon_may_join);
	tcase_add_test(cases, while_memory_moves_nobody_knows_whose_it_is);
	tcase_add_test(cases, what_others_had_while_members_took_turns);
	tcase_add_test(cases, an_old_sample_is_not_fresh);
	tcase_add_test(cases, members_are_told_of_a_sample_first);
	tcase_add_test(cases, one_that_joins_while_nvml_is_asked);
	tcase_add_test(cases, new_ones_hold_up_nobody_for_long);
	tcase_add_test(cases, where_nobody_takes_turns);
	suite_add_tcase(suite, cases);
	return check_suite_run(suite);
}
