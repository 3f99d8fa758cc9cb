/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process tells the others of a joint resume, by what it does when it is asked; and how it waits for them.
 */
#include "checkpoint/control/joint.h"
#include "checkpoint/control/state/state.h"
#include "checkpoint/engine/internal.h"
#include "checkpoint/sharing/sharing.h"
#include "common/protocol/pact.h"
#include "vmem/cuda_driver.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct pact *other;

/* This process is asked for a resume with one other, which has room, and looks at it in @state. */
static void ask(struct control_state state)
{
	int fd = pact_create(2);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(joint_take(fd), 0);
	other = pact_open(fd);
	ck_assert_ptr_nonnull(other);
	ck_assert(pact_join(other));
	pact_say(other, PACT_ROOM);
	close(fd);
	state.joint = true;
	joint_look(&state);
}

/* The other one takes its memory, and this one takes no part any more. */
static void check_left(void)
{
	ck_assert_int_eq(pact_look(other), PACT_TAKE);
	ck_assert(!joint_is_on());
	pact_close(other);
}

static void check_waited_for(void)
{
	ck_assert_int_eq(pact_look(other), PACT_SEEK);
	ck_assert(joint_is_on());
	ck_assert(pact_stop(other));
	pact_close(other);
}

START_TEST(one_that_runs_leaves_whatever_it_does)
{
	static const enum activity activities[] = {ACTIVITY_IDLE, ACTIVITY_TRIMMING,
						   ACTIVITY_PROBING, ACTIVITY_WRITING};

	for (size_t i = 0; i < sizeof(activities) / sizeof(*activities); i++) {
		ask((struct control_state){.rest = STATE_RUNNING, .activity = activities[i]});
		check_left();
	}
}
END_TEST

START_TEST(one_that_is_about_to_pause_or_to_run_is_waited_for)
{
	static const enum activity activities[] = {ACTIVITY_PAUSING, ACTIVITY_RESUMING,
						   ACTIVITY_YIELDING, ACTIVITY_FILLING};

	for (size_t i = 0; i < sizeof(activities) / sizeof(*activities); i++) {
		ask((struct control_state){.rest = STATE_RUNNING, .activity = activities[i]});
		check_waited_for();
	}
}
END_TEST

START_TEST(one_that_is_paused_is_waited_for)
{
	ask((struct control_state){.rest = STATE_PAUSED});
	check_waited_for();
	ask((struct control_state){.rest = STATE_PAUSED, .activity = ACTIVITY_TRIMMING});
	check_waited_for();
}
END_TEST

/* The loan of this process and another one is over, and it is in @state. Returns their pact, by which that resumes. */
static int return_from_loan(struct control_state state)
{
	const struct control_state lent = {.rest = STATE_PAUSED, .wishes[WISHER_SNAPSHOT] = true};
	int fd = pact_create(2);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(joint_keep(JOINT_LOAN, fd), 0);
	other = pact_open(fd);
	ck_assert_ptr_nonnull(other);
	ck_assert(pact_join(other));
	pact_say(other, PACT_ROOM);
	joint_look(&lent);
	ck_assert(!joint_is_on());
	joint_look(&state);
	return fd;
}

START_TEST(one_that_runs_leaves_the_loan_to_the_others)
{
	int fd = return_from_loan((struct control_state){.rest = STATE_RUNNING});

	/* They go on without it, and so does whoever tells it later that the loan is over. */
	ck_assert_int_eq(joint_take(fd), -ESTALE);
	check_left();
	close(fd);
}
END_TEST

START_TEST(one_that_resumes_alone_from_a_loan_may_do_so_with_the_others)
{
	const struct control_state resumes = {.rest = STATE_PAUSED, .activity = ACTIVITY_RESUMING};
	int fd = return_from_loan(resumes);

	ck_assert_int_eq(pact_look(other), PACT_SEEK);
	ck_assert(joint_is_on());
	ck_assert_int_eq(joint_take(fd), 0);
	ck_assert_ptr_nonnull(joint_next());
	close(fd);
	joint_look(&(struct control_state){.rest = STATE_RUNNING});
	check_left();
}
END_TEST

START_TEST(one_that_follows_a_later_pact_takes_none_of_a_loan)
{
	const struct control_state resumes = {.rest = STATE_PAUSED, .activity = ACTIVITY_RESUMING};
	int fd = return_from_loan(resumes), later = pact_create(2);

	ck_assert_int_eq(joint_take(later), 0);
	ck_assert_int_eq(joint_take(fd), -ESTALE);
	ck_assert_int_eq(pact_look(other), PACT_SEEK);
	close(fd);
	close(later);
	joint_look(&(struct control_state){.rest = STATE_RUNNING});
	check_left();
}
END_TEST

START_TEST(one_that_its_user_has_paused_keeps_all_of_a_loan_paused)
{
	close(return_from_loan(
		(struct control_state){.rest = STATE_PAUSED, .wishes[WISHER_USER] = true}));
	ck_assert_int_eq(pact_look(other), PACT_STOP);
	ck_assert(!joint_is_on());
	pact_close(other);
}
END_TEST

START_TEST(one_whose_daemon_has_no_pact_any_more_has_none)
{
	int fd = pact_create(2);

	ck_assert_int_eq(joint_keep(JOINT_LEASE, fd), 0);
	ck_assert_int_eq(joint_keep(JOINT_LEASE, -1), -EINVAL);
	ck_assert(!joint_use(JOINT_LEASE));
	close(fd);
}
END_TEST

static double now_ms = 1000;

double __wrap_clock_ms(void);

double __wrap_clock_ms(void)
{
	return now_ms += 5;
}

static CUresult set_current(CUcontext ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}

static struct engine_op waiting_op(void)
{
	static const struct cuda_driver driver = {.cuCtxSetCurrent = set_current};
	struct engine_op op = {.drv = &driver};
	int fd = pact_create(2);

	other = pact_open(fd);
	op.progress.pact = pact_open(fd);
	ck_assert(other && op.progress.pact);
	ck_assert(pact_join(other) && pact_join(op.progress.pact));
	close(fd);
	return op;
}

/* It looks, hears from the other one that it @says that, and waits: whether as long as it was told to. */
static bool waits_after(struct engine_op *op, enum pact_says says)
{
	static const size_t needed[GPU_MAX];
	double start;

	ck_assert(!engine_may_take(op, needed));
	pact_say(other, says);
	pact_look(other);
	start = now_ms;
	ck_assert_int_eq(engine_wait_for_others(op, 100), 0);
	return now_ms - start >= 100;
}

static void end(struct engine_op *op)
{
	pact_close(op->progress.pact);
	pact_close(other);
}

/* It goes on as soon as it hears what the others need, and that all have seen room; also if that came before the wait. */
START_TEST(news_that_come_between_a_look_and_the_wait_end_that)
{
	struct engine_op op = waiting_op();

	ck_assert(!waits_after(&op, PACT_SEEKS));
	ck_assert(waits_after(&op, PACT_SEEKS));
	ck_assert(!waits_after(&op, PACT_ROOM));
	end(&op);
}
END_TEST

static int remains, looks; /* what it finds of those that share memory, and how often it looks */

int __wrap_sharing_remains(struct sharing_wait *w);

int __wrap_sharing_remains(struct sharing_wait *w)
{
	snprintf(w->text, sizeof(w->text), "one does not answer");
	if (++looks == 3)
		pact_say(other, PACT_WHOLE);
	return remains;
}

/* It is whole; the other one has its memory. */
static struct engine_op whole_op(void)
{
	static const size_t needed[GPU_MAX];
	struct engine_op op = waiting_op();

	pact_say(other, PACT_SEEKS);
	ck_assert(!engine_may_take(&op, needed));
	pact_say(other, PACT_ROOM);
	ck_assert(engine_may_take(&op, needed));
	pact_say(other, PACT_HAS);
	return op;
}

START_TEST(one_that_is_whole_goes_with_the_others)
{
	struct engine_op op = whole_op();

	ck_assert_int_eq(engine_go_with_others(&op, 0), 0);
	ck_assert_int_eq(looks, 3);
	ck_assert_int_eq(pact_look(other), PACT_GO);
	end(&op);
}
END_TEST

/* That is of another job, perhaps, and may come again. */
START_TEST(one_that_is_whole_begins_again_when_one_that_shares_memory_has_gone_back)
{
	struct engine_op op = whole_op();

	remains = -EAGAIN;
	ck_assert_int_eq(engine_go_with_others(&op, 0), -1);
	ck_assert_int_eq(looks, 1);
	ck_assert(engine_is_called_back(&op));
	ck_assert_int_eq(pact_look(other), PACT_SEEK);
	end(&op);
}
END_TEST

START_TEST(one_that_is_whole_gives_up_when_one_that_shares_memory_is_lost)
{
	struct engine_op op = whole_op();

	remains = -EHOSTUNREACH;
	ck_assert_int_eq(engine_go_with_others(&op, 0), -1);
	ck_assert_int_eq(pact_look(other), PACT_STOP);
	ck_assert_int_eq(op.result.code, END_FAILED);
	ck_assert_int_eq(strncmp(op.result.message, "one does not answer", 19), 0);
	end(&op);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("joint");
	TCase *tc = tcase_create("joint");

	tcase_add_test(tc, one_that_runs_leaves_whatever_it_does);
	tcase_add_test(tc, one_that_is_about_to_pause_or_to_run_is_waited_for);
	tcase_add_test(tc, one_that_is_paused_is_waited_for);
	tcase_add_test(tc, one_that_runs_leaves_the_loan_to_the_others);
	tcase_add_test(tc, one_that_resumes_alone_from_a_loan_may_do_so_with_the_others);
	tcase_add_test(tc, one_that_follows_a_later_pact_takes_none_of_a_loan);
	tcase_add_test(tc, one_that_its_user_has_paused_keeps_all_of_a_loan_paused);
	tcase_add_test(tc, one_whose_daemon_has_no_pact_any_more_has_none);
	tcase_add_test(tc, news_that_come_between_a_look_and_the_wait_end_that);
	tcase_add_test(tc, one_that_is_whole_goes_with_the_others);
	tcase_add_test(tc,
		       one_that_is_whole_begins_again_when_one_that_shares_memory_has_gone_back);
	tcase_add_test(tc, one_that_is_whole_gives_up_when_one_that_shares_memory_is_lost);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
