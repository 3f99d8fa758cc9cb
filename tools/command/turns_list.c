/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/turns_list.h"

#include "common/text.h"
#include "tools/process/cudawd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_gpu(struct turns_list *list, const char *text)
{
	struct turns_gpu gpu = {.state = "open"};

	if (list->ngpus < GPUS_MAX &&
	    sscanf(text, "%40s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %15s", gpu.uuid,
		   &gpu.total, &gpu.used, &gpu.others, &gpu.capacity, gpu.state) >= 5)
		list->gpus[list->ngpus++] = gpu;
}

static int add_member(struct turns_list *list, const char *text)
{
	struct turns_member member = {0}, *grown;

	if (sscanf(text, "%" SCNu32 " %d %u %15s", &member.number, &member.pid, &member.uid,
		   member.state) != 4)
		return -EPROTO;
	grown = reallocarray(list->members, list->nmembers + 1, sizeof(member));
	if (!grown)
		return -ENOMEM;
	list->members = grown;
	grown[list->nmembers++] = member;
	return 0;
}

static void add_need(struct turns_member *member, const char *text)
{
	struct turns_need need;

	if (member->nneeds < GPUS_MAX &&
	    sscanf(text, "%40s %" SCNu64 " %" SCNu64, need.uuid, &need.mapped, &need.total) == 3)
		member->needs[member->nneeds++] = need;
}

static void describe(struct turns_member *member, const char *key, const char *value)
{
	if (!strcmp(key, "id"))
		format_copy(member->id, sizeof(member->id), value);
	else if (!strcmp(key, "name"))
		format_copy(member->name, sizeof(member->name), value);
	else if (!strcmp(key, "command"))
		format_copy(member->command, sizeof(member->command), value);
	else if (!strcmp(key, "class"))
		format_copy(member->class, sizeof(member->class), value);
	else if (!strcmp(key, "weight"))
		member->weight = atoi(value);
	else if (!strcmp(key, "need"))
		add_need(member, value);
	else if (!strcmp(key, "unfit"))
		sscanf(value, "%40s %" SCNu64 " %" SCNu64, member->unfit.uuid, &member->unfit.needs,
		       &member->unfit.there);
	else if (!strcmp(key, "turn"))
		sscanf(value, "%lf %lf %u %" SCNu32, &member->wait_ms, &member->left_ms,
		       &member->turns, &member->waits_for);
}

static int take_line(void *arg, char *line)
{
	struct turns_list *list = arg;
	char *value = strchr(line, ' ');

	if (!value)
		return 0;
	*value++ = '\0';
	if (!strcmp(line, "member"))
		return add_member(list, value);
	if (!strcmp(line, "daemon"))
		sscanf(value, "%d %31s", &list->pid, list->version);
	else if (!strcmp(line, "gpu"))
		add_gpu(list, value);
	else if (list->nmembers)
		describe(&list->members[list->nmembers - 1], line, value);
	return 0;
}

const struct turns_member *awaited_by(const struct turns_list *list,
				      const struct turns_member *member)
{
	for (int i = 0; i < list->nmembers; i++)
		if (list->members[i].number == member->waits_for)
			return &list->members[i];
	return NULL;
}

int ask_for_turns(struct turns_list *list, char where[PATH_MAX])
{
	*list = (struct turns_list){0};
	return cudawd_ask("list", CUDAWD_MS, take_line, list, where);
}

void free_turns(struct turns_list *list)
{
	free(list->members);
	*list = (struct turns_list){0};
}
