/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/daemon/parties_world.h"
#include "common/protocol/lines.h"
#include "tests/check_suite.h"

#include <stdio.h>

struct parties_world w;

void parties_begin(void)
{
	const struct turns_settings settings = {
		.quantum_ms = 1000, .residence_ms = 100, .rest_ms = 16000, .takes_ms = 30000};

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

uint32_t join_on(const char *job, int gpu, uint64_t mapped, uint64_t total)
{
	uint32_t id = parties_join(w.parties, 1000, job, TURNS_BATCH, 1, w.now);

	parties_need(w.parties, id, gpu, mapped * MIB, total * MIB, w.now);
	return id;
}

void join_one_paused(uint32_t *out, const char *job, uint64_t total, uint32_t *runs,
		     const char *other)
{
	*out = join_on(job, 0, 0, total);
	parties_paused(w.parties, *out, false, true, w.now);
	*runs = join_on(other, 0, 30, 30);
}

void end_move(uint32_t id, uint64_t mapped)
{
	parties_mapped(w.parties, id, mapped, w.now);
	parties_ended(w.parties, id, TURNS_OK, w.now);
}

void end_pause(uint32_t id)
{
	end_move(id, 0);
	parties_paused(w.parties, id, false, false, w.now);
	parties_want(w.parties, id, w.now);
}

bool is_ordered(enum party_order_kind kind, uint32_t id)
{
	parties_decide_now();
	for (size_t i = 0; i < w.n; i++)
		if (w.queue[i].order.kind == kind && w.queue[i].order.id == id)
			return true;
	return false;
}

void wait_for_order(enum party_order_kind kind, uint32_t id)
{
	for (int i = 0; !is_ordered(kind, id); i++) {
		ck_assert_int_lt(i, 2000);
		w.now += 10;
	}
}

void need_two(uint32_t id, uint64_t mapped, uint64_t total)
{
	for (int g = 0; g < 2; g++)
		parties_need(w.parties, id, g, mapped, total, w.now);
}

uint64_t ordered_bytes(enum party_order_kind kind, uint32_t id)
{
	for (size_t i = 0; i < w.n; i++)
		if (w.queue[i].order.kind == kind && w.queue[i].order.id == id)
			return w.queue[i].order.bytes;
	ck_abort_msg("no such order");
}

void begin_two(uint32_t *first, uint32_t *second, uint32_t *other, enum turns_end end)
{
	*first = join_on("two", 0, 30, 30);
	*second = join_on("two", 0, 30, 30);
	*other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, *other, 1, 0, 30 * MIB, w.now);
	wait_for_order(PARTY_YIELD, *first);
	if (end == TURNS_OK)
		end_move(*first, 0);
	else
		parties_ended(w.parties, *first, end, w.now);
}

void have_room(uint32_t *first, uint32_t *second)
{
	uint32_t other;

	begin_two(first, second, &other, TURNS_OK);
	end_move(*second, 0);
	parties_want(w.parties, *first, w.now);
	parties_leave(w.parties, other, w.now);
	wait_for_order(PARTY_ROOM, *second);
}

void give_two(uint32_t giver[2], int gpu, uint32_t *other)
{
	giver[0] = join_on("gives", 0, 40, 40);
	giver[1] = join_on("gives", gpu, 20, 20);
	*other = join_on("other", 0, 40, 40);
	parties_grow(w.parties, *other, 1, 0, (gpu ? 50 : 30) * MIB, w.now);
	wait_for_order(PARTY_YIELD, giver[0]);
	for (int i = 0; i < 2; i++)
		is_drained(giver[i]);
	wait_for_order(PARTY_SAY, giver[0]);
}
