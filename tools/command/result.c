/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/result.h"

#include "common/text.h"
#include "tools/command/output.h"
#include "tools/command/tools.h"

#include <stdio.h>
#include <string.h>

const struct result_verb result_pause = {"pause", "pausing", "paused"};
const struct result_verb result_resume = {"resume", "resuming", "resumed"};
const struct result_verb result_trim = {"trim", "trimming", "trimmed"};

/* "paused 1234 (train): 31.2 GiB in 1.1 s, 28.3 GB/s; what else is to be said" */
static void print_success(const struct result *r, const char *label)
{
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], rate[FORMAT_SIZE];

	printf("%s %s", r->verb->done, label);
	if (r->moved.known && r->unsized)
		printf(": in %s", format_duration(took, r->moved.ms));
	else if (r->moved.known)
		printf(": %s in %s, %s", format_bytes(bytes, r->moved.bytes),
		       format_duration(took, r->moved.ms),
		       format_rate(rate, r->moved.bytes, r->moved.ms));
	if (r->note[0])
		printf("%s%s", r->moved.known ? "; " : ": ", r->note);
	if (r->ended)
		printf("; it has ended since");
	putchar('\n');
}

static void print(const struct result *r, const char *label)
{
	if (r->code)
		complain("%s %s: %s", r->verb->name, label, r->why);
	else if (!strcmp(r->word, "meant"))
		printf("would %s %s\n", r->verb->name, label);
	else if (!strcmp(r->word, "done"))
		print_success(r, label);
	else
		printf("%s %s%s%s\n", *r->why ? r->word : r->verb->doing, label,
		       *r->why ? ": " : "", r->why);
}

static json_t *object_of(const struct result *r)
{
	json_t *object = json_pack("{s:s, s:i, s:o, s:o, s:s, s:i, s:o, s:o}", "request",
				   r->verb->name, "pid", r->pid, "id", output_text_or_null(r->id),
				   "name", output_text_or_null(r->name), "outcome", r->word, "code",
				   r->code, "message", output_text_or_null(r->why), "note",
				   output_text_or_null(r->note));

	output_transfer(object, "", &r->moved);
	if (r->unsized) {
		json_object_set_new(object, "bytes", json_null());
		json_object_set_new(object, "gbps", json_null());
	}
	return object;
}

void result_print(const struct result *result, json_t *rows)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", result->pid);
	if (result->code || !rows)
		print(result, result->label ? result->label : pid);
	if (rows)
		json_array_append_new(rows, object_of(result));
}
