/* SPDX-License-Identifier: Apache-2.0 */
/* How long a process that exits waits for its operation; here that is played, and milliseconds pass at once. */
#include "checkpoint/control/operation.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/gate.h"
#include "common/protocol/pact.h"
#include "vmem/cuda_driver.h"

#include "tests/check_suite.h"

#include <sched.h>
#include <unistd.h>

static bool agreed, goes, ended; /* what the resume does: it ends when it @goes */
static unsigned int slept_ms;
static unsigned int goes_ms = -1u;

void __wrap_engine_resume(struct engine_op *op);

static bool is_to_end(void)
{
	return __atomic_load_n(&goes, __ATOMIC_RELAXED) ||
	       (!agreed && __atomic_load_n(&operation_progress()->cancel, __ATOMIC_RELAXED));
}

/* libc's, as all that is linked here calls it. */
int usleep(useconds_t us)
{
	slept_ms += us / 1000;
	if (slept_ms >= goes_ms)
		__atomic_store_n(&goes, true, __ATOMIC_RELAXED);
	while (is_to_end() && !__atomic_load_n(&ended, __ATOMIC_RELAXED))
		sched_yield();
	return 0;
}

void __wrap_engine_resume(struct engine_op *op)
{
	__atomic_store_n(&op->progress.agreed, agreed, __ATOMIC_RELAXED);
	while (!is_to_end())
		sched_yield();
	__atomic_store_n(&ended, true, __ATOMIC_RELAXED);
}

static CUresult version(int *cuda)
{
	*cuda = 13000;
	return CUDA_SUCCESS;
}

static void wake(void)
{
}

/* It exits during a resume together with another process; true if that has ended when it goes on. */
static bool exits(void)
{
	static const struct cuda_driver driver = {.cuDriverGetVersion = version};
	struct operation_options options = {.joint = true};
	struct engine_result pause = {0};
	int fd = pact_create(2);
	struct pact *pact = pact_open(fd);

	ck_assert(pact && pact_join(pact));
	operation_init(&driver, wake);
	ck_assert_int_eq(operation_start(OP_RESUME, &options, NULL, &pause, pact), 0);
	while (agreed && !__atomic_load_n(&operation_progress()->agreed, __ATOMIC_RELAXED))
		sched_yield();
	operation_see_through();
	return __atomic_load_n(&ended, __ATOMIC_RELAXED);
}

START_TEST(a_resume_that_waits_for_others_gives_its_memory_back)
{
	ck_assert(exits());
}
END_TEST

/* It may wait for one that is stopped. */
START_TEST(one_that_has_agreed_to_run_is_left_after_a_while)
{
	agreed = true;
	ck_assert(!exits());
	ck_assert_uint_ge(slept_ms, GATE_EXIT_MS);
	/* The next handler does not wait as long again. */
	operation_see_through();
	ck_assert_uint_lt(slept_ms, 2 * GATE_EXIT_MS);
}
END_TEST

START_TEST(one_that_has_agreed_to_run_is_seen_through_until_then)
{
	agreed = true;
	goes_ms = 100;
	ck_assert(exits());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("operation");
	TCase *tc = tcase_create("exit");

	tcase_add_test(tc, a_resume_that_waits_for_others_gives_its_memory_back);
	tcase_add_test(tc, one_that_has_agreed_to_run_is_left_after_a_while);
	tcase_add_test(tc, one_that_has_agreed_to_run_is_seen_through_until_then);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
