/* SPDX-License-Identifier: Apache-2.0 */
/* Coming to rest, over a driver of one context that only knows whether its GPU has work. */
#include "checkpoint/gate/quiet.h"

#include "tests/check_suite.h"
#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HANG_MS  30000 /* for a GPU and threads that have next to nothing to do, on any machine */
#define STUCK_MS 50

static const bool never;
static unsigned int work, drains; /* what the GPU has to do; how often it was waited for */
static bool go, busy;             /* busy: the GPU's work does not end */
static struct quiet *impatient;   /* has STUCK_MS from the first time on that the GPU is idle */

static CUresult get_count(int *count)
{
	*count = 0;
	return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext ctx)
{
	(void)ctx;
	return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	while (__atomic_load_n(&busy, __ATOMIC_SEQ_CST))
		usleep(100);
	__atomic_store_n(&work, 0, __ATOMIC_SEQ_CST);
	if (impatient)
		impatient->deadline_ms = clock_ms() + STUCK_MS;
	impatient = NULL;
	__atomic_add_fetch(&drains, 1, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	(void)mode;
	return CUDA_SUCCESS;
}

static const struct cuda_driver drv = {
	.cuDeviceGetCount = get_count,
	.cuCtxSetCurrent = set_current,
	.cuCtxSynchronize = synchronize,
	.cuThreadExchangeStreamCaptureMode = exchange_mode,
};

static struct context_list contexts;

static struct quiet quiet_within(double ms)
{
	return (struct quiet){.drv = &drv,
			      .deadline_ms = clock_ms() + ms,
			      .cancel = &never,
			      .contexts = &contexts};
}

static void set_up(void)
{
	ck_assert_int_eq(gate_init(), 0);
	ck_assert(contexts_reserve());
	contexts_add((CUcontext)1, 0);
}

static void wait_for(const bool *what)
{
	while (!__atomic_load_n(what, __ATOMIC_SEQ_CST))
		usleep(100);
}

struct worker {
	pthread_t thread;
	enum gate_kind kind;
	const char *name;
	bool inside;
	pid_t tid;
};

/* Its call does not return before "go". */
static void *stays_inside(void *arg)
{
	struct worker *me = arg;

	if (me->name)
		pthread_setname_np(pthread_self(), me->name);
	me->tid = gettid();
	ck_assert(gate_enter(me->kind));
	__atomic_store_n(&me->inside, true, __ATOMIC_SEQ_CST);
	wait_for(&go);
	gate_exit();
	return NULL;
}

/* A synchronising call, with a launch in it: by a signal handler, or a profiler. */
static void *launches_inside(void *arg)
{
	struct worker *me = arg;

	ck_assert(gate_enter(GATE_WAIT));
	__atomic_store_n(&me->inside, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&drains, __ATOMIC_SEQ_CST))
		usleep(100);
	ck_assert(gate_enter(GATE_HOLD));
	__atomic_store_n(&work, 1, __ATOMIC_SEQ_CST);
	gate_exit();
	gate_exit();
	return NULL;
}

static void begin(struct worker *worker, void *(*function)(void *))
{
	ck_assert_int_eq(pthread_create(&worker->thread, NULL, function, worker), 0);
	wait_for(&worker->inside);
}

START_TEST(what_a_call_inside_a_waiting_one_launched_is_waited_for)
{
	struct quiet q = quiet_within(HANG_MS);
	struct worker worker = {.inside = false};

	set_up();
	begin(&worker, launches_inside);
	ck_assert_int_eq(quiet_enter(&q), 0);
	ck_assert_uint_eq(__atomic_load_n(&work, __ATOMIC_SEQ_CST), 0);
	ck_assert_uint_eq(contexts.count, 1);
	pthread_join(worker.thread, NULL);
}
END_TEST

static const struct {
	enum gate_kind kind;
	const char *name, *text; /* with a %d for the thread's id */
} stuck[] = {
	{GATE_HOLD, "loader", "a driver call in thread %d (loader) did not return"},
	{GATE_WAIT, "fifteen letters",
	 "a synchronising call in thread %d (fifteen letters) did not return"},
	{GATE_HOLD, "two\nlines\x80", "a driver call in thread %d (two?lines?) did not return"},
	{GATE_HOLD, "", "a driver call in thread %d () did not return"},
	{GATE_ASK, "watchdog", "a driver call in thread %d (watchdog) did not return"},
};

START_TEST(the_thread_that_is_waited_for_is_named)
{
	/* The GPU is waited for after the calls that submit work, and before all others. */
	struct quiet q = quiet_within(stuck[_i].kind == GATE_HOLD ? STUCK_MS : HANG_MS);
	struct worker worker = {.kind = stuck[_i].kind, .name = stuck[_i].name};
	char text[QUIET_TEXT];

	set_up();
	impatient = &q;
	begin(&worker, stays_inside);
	ck_assert_int_eq(quiet_enter(&q), -ETIME);
	impatient = NULL;
	snprintf(text, sizeof(text), stuck[_i].text, worker.tid);
	ck_assert_str_eq(q.what, text);
	/* The gate is open again. */
	ck_assert(gate_enter(GATE_HOLD));
	gate_exit();
	__atomic_store_n(&go, true, __ATOMIC_SEQ_CST);
	pthread_join(worker.thread, NULL);
	q = quiet_within(HANG_MS);
	ck_assert_int_eq(quiet_enter(&q), 0);
}
END_TEST

static unsigned int answers; /* calls of the watchdog that entered */

/* Asks until the process rests. */
static void *watches(void *arg)
{
	struct worker *me = arg;

	while (gate_enter(GATE_ASK)) {
		__atomic_add_fetch(&answers, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&me->inside, true, __ATOMIC_SEQ_CST);
		gate_exit();
	}
	return NULL;
}

static void *enters_quiet(void *arg)
{
	ck_assert_int_eq(quiet_enter(arg), 0);
	__atomic_store_n(&go, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A watchdog asks on while kernels run. It is out of the driver when the process is at rest. */
START_TEST(who_asks_enters_until_the_process_rests)
{
	struct quiet q = quiet_within(HANG_MS);
	struct worker worker = {.inside = false};
	unsigned int before;
	pthread_t engine;

	set_up();
	__atomic_store_n(&busy, true, __ATOMIC_SEQ_CST);
	begin(&worker, watches);
	ck_assert_int_eq(pthread_create(&engine, NULL, enters_quiet, &q), 0);
	while (!(__atomic_load_n(&gate_flags, __ATOMIC_SEQ_CST) & GATE_CLOSED))
		usleep(100);
	before = __atomic_load_n(&answers, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&answers, __ATOMIC_SEQ_CST) < before + 2)
		usleep(100);
	__atomic_store_n(&busy, false, __ATOMIC_SEQ_CST);
	wait_for(&go);
	before = __atomic_load_n(&answers, __ATOMIC_SEQ_CST);
	usleep(2000);
	ck_assert_uint_eq(__atomic_load_n(&answers, __ATOMIC_SEQ_CST), before);
	ck_assert(!gate_rests());
	gate_rest();
	ck_assert(gate_rests());
	pthread_join(worker.thread, NULL);
	pthread_join(engine, NULL);
}
END_TEST

static void wake_nobody(void)
{
}

static struct hold_report next_report(struct hold *hold)
{
	struct hold_report report;

	while (!hold_take_report(hold, &report))
		usleep(100);
	return report;
}

/* Before a call that waits for other processes. */
static void launch(void)
{
	const struct ranks_launch one = {.kind = RANKS_OTHER, .count = 1};
	int seen;

	ck_assert(ranks_try(&one, 1, &seen));
}

/* A step of the training may take long. The counts that move show that it is not stuck. */
START_TEST(who_is_on_its_way_to_a_target_says_how_far)
{
	struct hold_order order = {.reach = 1, .targets = {{.id = 1, .count = 3}}, .ntargets = 1};
	struct quiet q = quiet_within(HANG_MS);
	struct hold_report report;
	struct hold hold;
	pthread_t engine;

	set_up();
	hold_init(&hold, wake_nobody);
	q.hold = &hold;
	launch();
	ck_assert_int_eq(pthread_create(&engine, NULL, enters_quiet, &q), 0);
	while (!next_report(&hold).drained)
		;
	hold_give_order(&hold, &order);
	launch();
	ck_assert(next_report(&hold).runs);
	launch();
	do
		report = next_report(&hold);
	while (report.runs || !report.drained);
	ck_assert_uint_eq(report.reached, 1);
	hold_give_order(&hold, &(struct hold_order){.commit = true});
	pthread_join(engine, NULL);
}
END_TEST

START_TEST(nobody_is_named_where_none_is_inside)
{
	char text[QUIET_TEXT];

	ck_assert_str_eq(quiet_name_call(GATE_HOLD, text), "a driver call did not return");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("quiet");
	TCase *tc = tcase_create("quiet");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_a_call_inside_a_waiting_one_launched_is_waited_for);
	tcase_add_loop_test(tc, the_thread_that_is_waited_for_is_named, 0,
			    sizeof(stuck) / sizeof(stuck[0]));
	tcase_add_test(tc, who_asks_enters_until_the_process_rests);
	tcase_add_test(tc, who_is_on_its_way_to_a_target_says_how_far);
	tcase_add_test(tc, nobody_is_named_where_none_is_inside);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
