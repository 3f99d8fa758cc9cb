/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/request.h"
#include "checkpoint/snapshot/codec.h"
#include "common/gpu.h"
#include "common/nvml.h"
#include "common/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECTED                                                                                    \
	"status, pause [MS] [all|memory], hold [MS] [all|memory], resume [MS], regain [MS], trim, " \
	"snapshot ... /DIR or done /DIR"
#define EXPECTED_YIELD "yield BYTES [MS] [hold], or room BYTES [hold] by the same client"
#define EXPECTED_MOVED "moved [GPU-OLD=GPU-NEW]... /DIR"

/* Milliseconds: @fallback if the text is empty, -1 if it is not a number. */
static int parse_number(const char *text, int fallback)
{
	char *end;
	long value;

	if (!*text)
		return fallback;
	value = strtol(text, &end, 10);
	return *end || value < 0 || value > INT_MAX ? -1 : (int)value;
}

static bool parse_nothing(struct request *r, char *text)
{
	(void)r;
	return !text;
}

/* "[MS]" */
static bool parse_resume(struct request *r, char *text)
{
	r->timeout_ms = parse_number(text ? text : "", 0);
	return r->timeout_ms >= 0;
}

/* "[MS] [all|memory]" */
static bool parse_pause(struct request *r, char *text)
{
	static const struct {
		const char *word;
		enum release_choice choice;
	} choices[] = {{"all", RELEASE_ALL}, {"memory", RELEASE_MEMORY}};
	char *space = text ? strrchr(text, ' ') : NULL;
	char *last = space ? space + 1 : text;

	for (size_t i = 0; last && i < 2; i++)
		if (!strcmp(last, choices[i].word)) {
			r->release = choices[i].choice;
			*(space ? space : text) = '\0';
			break;
		}
	r->timeout_ms = parse_number(text ? text : "", CONTROL_PAUSE_TIMEOUT_MS);
	return r->timeout_ms >= 0;
}

static bool parse_held_pause(struct request *r, char *text)
{
	r->hold = true;
	return parse_pause(r, text);
}

static bool parse_held_resume(struct request *r, char *text)
{
	r->hold = true;
	return parse_resume(r, text);
}

static bool take_word(const char **text, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(*text, word, len))
		return false;
	*text += len;
	return true;
}

/* "[pause [MS]] [incremental] [hold] [image] [none|lz4|zstd] /DIR" */
static bool parse_snapshot(struct request *r, char *argument)
{
	struct snapshot_plan *plan = &r->plan;
	const char *text = argument ? argument : "";
	long ms = CONTROL_PAUSE_TIMEOUT_MS;
	char codec[8];
	int len = 0;

	plan->pause = take_word(&text, "pause ");
	if (plan->pause && sscanf(text, "%10ld %n", &ms, &len) == 1)
		text += len;
	r->timeout_ms = ms > INT_MAX ? -1 : (int)ms;
	plan->incremental = take_word(&text, "incremental ");
	plan->hold = take_word(&text, "hold ");
	plan->image = take_word(&text, "image ");
	plan->codec = SNAPSHOT_RAW;
	len = 0;
	if (sscanf(text, "%7[a-z0-9] %n", codec, &len) == 1) {
		if (!snapshot_codec_parse(codec, &plan->codec))
			return false;
		text += len;
	}
	return r->timeout_ms >= 0 && *text == '/' &&
	       snprintf(plan->path, sizeof(plan->path), "%s", text) < (int)sizeof(plan->path);
}

static bool parse_done(struct request *r, char *text)
{
	r->path = text;
	return text && *text == '/';
}

/* "[OLD=NEW]... /DIR" */
static bool parse_moved(struct request *r, char *argument)
{
	const char *text = argument ? argument : "";
	char uuids[2][NVML_UUID_SIZE];
	int len;

	for (; *text && *text != '/'; text += len, r->npairs++) {
		len = 0;
		if (r->npairs == GPU_MAX ||
		    sscanf(text, "%40[^= ]=%40[^ ] %n", uuids[0], uuids[1], &len) != 2 || !len ||
		    !nvml_uuid_parse(uuids[0], &r->pairs[r->npairs].oldUuid) ||
		    !nvml_uuid_parse(uuids[1], &r->pairs[r->npairs].newUuid))
			return false;
	}
	r->path = text;
	return *text;
}

/* Cut "hold" from the end of @text. False: it is not there. */
static bool cut_hold(char *text)
{
	char *space = text ? strrchr(text, ' ') : NULL;

	if (!space || strcmp(space, " hold") != 0)
		return false;
	*space = '\0';
	return true;
}

/* "BYTES [hold]" */
static bool parse_room(struct request *r, char *text)
{
	char *end = text;

	r->hold |= cut_hold(text);
	r->bytes = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
	return end != text && !*end;
}

/* "BYTES [MS] [hold]" */
static bool parse_yield(struct request *r, char *text)
{
	char *space;

	r->hold = cut_hold(text);
	space = text ? strchr(text, ' ') : NULL;
	if (space)
		*space++ = '\0';
	r->timeout_ms = parse_number(space ? space : "", CONTROL_PAUSE_TIMEOUT_MS);
	return parse_room(r, text) && r->timeout_ms >= 0;
}

static const struct row {
	const char *text;
	enum request_word word;
	bool (*parse)(struct request *r, char *argument); /* NULL: it has none; false: not valid */
	const char *expected;
} rows[] = {
	{"status", REQUEST_STATUS, parse_nothing, EXPECTED},
	{"pause", REQUEST_PAUSE, parse_pause, EXPECTED},
	{"hold", REQUEST_PAUSE, parse_held_pause, EXPECTED},
	{"resume", REQUEST_RESUME, parse_resume, EXPECTED},
	{"regain", REQUEST_RESUME, parse_held_resume, EXPECTED},
	{"trim", REQUEST_TRIM, parse_nothing, EXPECTED},
	{"snapshot", REQUEST_SNAPSHOT, parse_snapshot, EXPECTED},
	{"done", REQUEST_DONE, parse_done, EXPECTED},
	{"moved", REQUEST_MOVED, parse_moved, EXPECTED_MOVED},
	{"yield", REQUEST_YIELD, parse_yield, EXPECTED_YIELD},
	{"room", REQUEST_ROOM, parse_room, EXPECTED_YIELD},
};

const char *request_parse(char *line, struct request *request)
{
	size_t len = strcspn(line, " ");
	char *argument = line[len] ? line + len + 1 : NULL;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strlen(rows[i].text) != len || strncmp(line, rows[i].text, len))
			continue;
		*request = (struct request){.word = rows[i].word};
		return rows[i].parse(request, argument) ? NULL : rows[i].expected;
	}
	return EXPECTED;
}

/* "NUMBER ID:COUNT..." */
static bool parse_reach(struct hold_order *order, const char *text)
{
	unsigned long long count;
	int len = 0;

	if (sscanf(text, "%9u%n", &order->reach, &len) != 1)
		return false;
	for (text += len; *text; text += len) {
		struct ranks_target *target = &order->targets[order->ntargets];

		if (order->ntargets == RANKS_COMMS ||
		    sscanf(text, " %9u:%18llu%n", &target->id, &count, &len) != 2)
			return false;
		target->count = count;
		order->ntargets++;
	}
	return order->reach && order->ntargets;
}

const char *request_parse_order(const char *line, struct request_order *order)
{
	int calls = strncmp(line, "step ", 5) ? 0 : parse_number(line + 5, 0);

	*order = (struct request_order){.order.commit = !strcmp(line, "commit"),
					.abort = !strcmp(line, "abort")};
	if (!strncmp(line, "beside ", 7) && parse_number(line + 7, 0) > 0) {
		order->beside = parse_number(line + 7, 0);
		return NULL;
	}
	if (calls > 0 && calls <= PROTOCOL_STEP)
		order->order.step = calls;
	if (order->order.step || order->order.commit || order->abort)
		return NULL;
	if (!strncmp(line, "reach ", 6) && parse_reach(&order->order, line + 6))
		return NULL;
	order->order = (struct hold_order){0};
	return "step N, reach N ID:COUNT..., beside PID, commit or abort";
}
