/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/request.h"
#include "checkpoint/snapshot/files/codec.h"
#include "common/gpu/nvml.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Of the number at @at in the line. */
static bool take_ms(struct request *r, int at, int fallback)
{
	double ms = at < r->line.numbers ? r->line.number[at] : (uint64_t)fallback;

	r->timeout_ms = ms;
	r->own_limit = at >= r->line.numbers;
	return ms <= INT_MAX;
}

static bool take_pause(struct request *r)
{
	const char *word = r->line.word[0];

	r->hold = r->line.id == REQUEST_HOLD;
	r->lent = r->hold && !strcmp(word, "snapshot");
	if (!strcmp(word, "all") || r->lent)
		r->release = RELEASE_ALL;
	else if (!strcmp(word, "memory"))
		r->release = RELEASE_MEMORY;
	return take_ms(r, 0, CONTROL_PAUSE_TIMEOUT_MS) && (!*word || r->release != RELEASE_AS_SET);
}

static bool take_resume(struct request *r)
{
	r->hold = r->line.id == REQUEST_REGAIN;
	return take_ms(r, 0, 0);
}

static bool skip_word(const char **text, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(*text, word, len))
		return false;
	*text += len;
	return true;
}

/* "[none|lz4|zstd] " */
static bool take_codec(const char **text, enum snapshot_codec *codec)
{
	size_t len = **text == '/' ? 0 : strcspn(*text, " ");
	char word[8];

	*codec = SNAPSHOT_RAW;
	if (!len)
		return true;
	snprintf(word, sizeof(word), "%.*s", (int)len, *text);
	*text += len + ((*text)[len] == ' ');
	return snapshot_codec_parse(word, codec);
}

/* "[parts PID PID... ]" */
static bool take_parts(const char **text, struct snapshot_plan *plan)
{
	uint64_t pid;

	if (!skip_word(text, "parts "))
		return true;
	for (; line_numbers(text, INT_MAX, &pid, 1); *text += **text == ' ') {
		if (plan->nparts == SNAPSHOT_PARTS_MAX)
			return false;
		plan->parts[plan->nparts++] = pid;
	}
	return plan->image && plan->nparts > 1;
}

/* "[pause [MS]] [incremental] [hold] [image [parts PID PID...]] [none|lz4|zstd] /DIR" */
static bool take_snapshot(struct request *r)
{
	struct snapshot_plan *plan = &r->plan;
	const char *text = r->line.text;

	plan->pause = skip_word(&text, "pause ");
	if (plan->pause && line_numbers(&text, INT_MAX, &r->line.number[0], 1)) {
		r->line.numbers = 1;
		text += *text == ' ';
	}
	plan->incremental = skip_word(&text, "incremental ");
	plan->gives_back = skip_word(&text, "hold ");
	plan->image = skip_word(&text, "image ");
	return take_ms(r, 0, CONTROL_PAUSE_TIMEOUT_MS) && take_parts(&text, plan) &&
	       take_codec(&text, &plan->codec) && *text == '/' &&
	       snprintf(plan->path, sizeof(plan->path), "%s", text) < (int)sizeof(plan->path);
}

static bool take_path(struct request *r)
{
	r->path = r->line.text;
	return *r->path == '/';
}

/* A UUID with @end behind it. */
static bool take_uuid(const char **text, char end, CUuuid *uuid)
{
	char name[NVML_UUID_SIZE];

	snprintf(name, sizeof(name), "%s", *text);
	if (!nvml_uuid_parse(name, uuid) || (*text)[strlen(name)] != end)
		return false;
	*text += sizeof(name);
	return true;
}

/* "[OLD=NEW]... /DIR" */
static bool take_moved(struct request *r)
{
	for (r->path = r->line.text; *r->path && *r->path != '/'; r->npairs++)
		if (r->npairs == GPU_MAX ||
		    !take_uuid(&r->path, '=', &r->pairs[r->npairs].oldUuid) ||
		    !take_uuid(&r->path, ' ', &r->pairs[r->npairs].newUuid))
			return false;
	return *r->path;
}

static bool take_room(struct request *r)
{
	r->hold = !strcmp(r->line.word[0], "hold");
	r->bytes = r->line.number[0];
	return r->hold || r->context || !*r->line.word[0];
}

static bool take_yield(struct request *r)
{
	r->context = !strcmp(r->line.word[0], "context");
	return take_room(r) && take_ms(r, 1, CONTROL_PAUSE_TIMEOUT_MS);
}

static bool take_step(struct request *r)
{
	if (!r->line.number[0] || r->line.number[0] > PROTOCOL_STEP)
		return false;
	r->order.step = r->line.number[0];
	return true;
}

/* "NUMBER ID:COUNT..." */
static bool take_reach(struct request *r)
{
	const char *text = r->line.text;
	struct hold_order *order = &r->order;

	for (; *text; order->ntargets++, text += *text == ' ') {
		uint64_t target[2];

		if (order->ntargets == RANKS_COMMS || !line_numbers(&text, INT64_MAX, target, 2) ||
		    target[0] > UINT32_MAX)
			return false;
		order->targets[order->ntargets] = (struct ranks_target){target[0], target[1]};
	}
	order->reach = r->line.number[0] > UINT_MAX ? 0 : r->line.number[0];
	return order->reach;
}

static bool take_beside(struct request *r)
{
	return r->line.number[0] && r->line.number[0] <= INT_MAX;
}

/* Of the lines with a meaning beyond their parts. */
static bool (*const takers[TO_JOB])(struct request *r) = {
	[REQUEST_PAUSE] = take_pause,       [REQUEST_HOLD] = take_pause,
	[REQUEST_RESUME] = take_resume,     [REQUEST_REGAIN] = take_resume,
	[REQUEST_SNAPSHOT] = take_snapshot, [REQUEST_RECALL] = take_path,
	[REQUEST_DONE] = take_path,         [REQUEST_MOVED] = take_moved,
	[REQUEST_YIELD] = take_yield,       [REQUEST_ROOM] = take_room,
	[ORDER_STEP] = take_step,           [ORDER_REACH] = take_reach,
	[ORDER_BESIDE] = take_beside,
};

static const char *expected_for(int id)
{
	switch (id) {
	case REQUEST_MOVED:
		return "moved [GPU-OLD=GPU-NEW]... /DIR";
	case REQUEST_YIELD:
	case REQUEST_ROOM:
		return "yield BYTES [MS] [hold|context], or room BYTES [hold] by the same client";
	default:
		return "status, pause [MS] [all|memory], hold [MS] [all|memory|snapshot], resume [MS], "
		       "regain [MS], trim, snapshot ... /DIR, recall /DIR or done /DIR";
	}
}

void request_parse(const char *text, struct request *r)
{
	bool (*take)(struct request *) = NULL;
	bool valid;

	*r = (struct request){.text = text};
	valid = !line_parse(&lines_to_job, text, &r->line);
	if (r->line.id < TO_JOB)
		take = takers[r->line.id];
	r->id = valid && (!take || take(r)) ? r->line.id : TO_JOB;
	r->expected = expected_for(r->line.id);
}

bool request_is_order(const struct request *request)
{
	return request->id >= ORDER_STEP && request->id <= ORDER_ABORT;
}
