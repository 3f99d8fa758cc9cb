/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/party/rest.h"

#include "common/protocol/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rest_init(struct rest *rest, size_t n, uint32_t seed, double now_ms)
{
	*rest = (struct rest){.ranks = calloc(n, sizeof(*rest->ranks)),
			      .reaching = calloc(n, sizeof(*rest->reaching))};
	if (!rest->ranks || !rest->reaching)
		return -ENOMEM;
	reach_begin(&rest->reach, rest->reaching, n, now_ms);
	steps_begin(&rest->steps, rest->ranks, n, seed, now_ms);
	return 0;
}

void rest_fini(struct rest *rest)
{
	free(rest->ranks);
	free(rest->reaching);
	*rest = (struct rest){0};
}

int rest_take(struct rest *rest, size_t rank, const struct line *line, double now_ms)
{
	bool drained = !strcmp(line->word[0], "drained");
	uint32_t came = (uint32_t)line->number[0], number = (uint32_t)line->number[1];

	if (line->id == REPORT_COMMS)
		return reach_take_comms(&rest->reach, rank, line->text, now_ms);
	if (!drained && strcmp(line->word[0], "stuck") != 0)
		return -EBADMSG;
	/* Also during steps: the first of them comes when the last order to reach is answered. */
	if (reach_take_held(&rest->reach, rank, number, now_ms))
		steps_take(&rest->steps, rank, drained, came, now_ms);
	return 0;
}

void rest_ask(struct rest *rest, size_t rank)
{
	rest->ranks[rank] = (struct steps_rank){.asked = true};
	rest->reaching[rank] = (struct reach_rank){0};
}

bool rest_is_drained(const struct rest *rest, size_t rank)
{
	return rest->ranks[rank].drained && !rest->ranks[rank].left;
}

void rest_leave(struct rest *rest, size_t rank)
{
	steps_leave(&rest->steps, rank);
}

bool rest_has_comms(const struct rest *rest, size_t rank)
{
	return rest->reaching[rank].n > 0;
}

enum rest_verdict rest_next(struct rest *rest, double now_ms)
{
	enum reach_verdict verdict;

	rest->by_reaching = !rest->by_steps && !steps_are_over(&rest->steps);
	if (rest->by_reaching) {
		verdict = reach_next(&rest->reach, &rest->steps, now_ms);
		rest->by_steps = verdict == REACH_OVER;
		return verdict == REACH_WAIT ? REST_WAIT : REST_GO;
	}
	switch (steps_next(&rest->steps, now_ms)) {
	case STEPS_READY:
		return REST_READY;
	case STEPS_GO:
		return REST_GO;
	default:
		return REST_WAIT;
	}
}

bool rest_order(const struct rest *rest, size_t rank, char text[static REACH_TEXT])
{
	if (rest->by_reaching) {
		if (rest->reaching[rank].ordered)
			reach_write(&rest->reach, rank, text);
		return rest->reaching[rank].ordered;
	}
	snprintf(text, REACH_TEXT, "step %u", rest->ranks[rank].step);
	return rest->ranks[rank].step > 0;
}
