/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/daemon/parties_world.h"
#include "common/protocol/lines.h"
#include "tests/check_suite.h"

#include <stdio.h>

struct parties_world w;

void parties_begin(void)
{
	const struct turns_settings settings = {.quantum_ms = 1000, .residence_ms = 100};

	w = (struct parties_world){.parties = parties_new(&settings), .now = 1000};
	ck_assert_ptr_nonnull(w.parties);
	for (int g = 0; g < GPUS; g++)
		turns_capacity(parties_turns(w.parties), g, CAPACITY);
}

void parties_end(void)
{
	parties_free(w.parties);
}

static void keep(const struct party_order *order, void *arg)
{
	(void)arg;
	ck_assert_uint_lt(w.n, QUEUED);
	w.queue[w.n].order = *order;
	if (order->text)
		snprintf(w.queue[w.n].text, sizeof(w.queue[0].text), "%s", order->text);
	w.n++;
}

void parties_decide_now(void)
{
	w.n = 0;
	parties_decide(w.parties, w.now, keep, NULL);
	parties_check(w.parties);
}

void is_drained(uint32_t id)
{
	static const struct line held = {.id = REPORT_HELD, .word = {"drained"}, .text = ""};

	ck_assert_int_eq(parties_take(w.parties, id, &held, w.now), 0);
}
