/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/turns/turns_list.h"

#include "common/text.h"
#include "tools/process/cudawd.h"

#include <errno.h>
#include <stdlib.h>

static void add_gpu(struct turns_list *list, const struct line *line)
{
	struct turns_gpu *gpu = &list->gpus[list->ngpus];

	if (list->ngpus == GPUS_MAX)
		return;
	list->ngpus++;
	*gpu = (struct turns_gpu){.total = line->number[0],
				  .used = line->number[1],
				  .others = line->number[2],
				  .capacity = line->number[3]};
	format_copy(gpu->uuid, sizeof(gpu->uuid), line->word[0]);
	format_copy(gpu->state, sizeof(gpu->state), *line->word[1] ? line->word[1] : "open");
}

static int add_member(struct turns_list *list, const struct line *line)
{
	struct turns_member *grown =
				    reallocarray(list->members, list->nmembers + 1, sizeof(*grown)),
			    *member;

	if (!grown)
		return -ENOMEM;
	list->members = grown;
	member = &grown[list->nmembers++];
	*member = (struct turns_member){.number = (uint32_t)line->number[0],
					.pid = (int)line->number[1],
					.uid = (uid_t)line->number[2],
					.context = "in"};
	format_copy(member->state, sizeof(member->state), line->word[0]);
	return 0;
}

static void add_need(struct turns_member *member, const struct line *line)
{
	struct turns_need *need = &member->needs[member->nneeds];

	if (member->nneeds == GPUS_MAX)
		return;
	member->nneeds++;
	format_copy(need->uuid, sizeof(need->uuid), line->word[0]);
	need->mapped = line->number[0];
	need->total = line->number[1];
}

static const struct line_field fields[FROM_DAEMON] = {
	[LISTED_ID] = LINE_FIELD(turns_member, id),
	[LISTED_NAME] = LINE_FIELD(turns_member, name),
	[LISTED_COMMAND] = LINE_FIELD(turns_member, command),
	[LISTED_CLASS] = LINE_FIELD(turns_member, class),
	[LISTED_CONTEXT] = LINE_FIELD(turns_member, context),
};

static void describe(struct turns_member *member, const struct line *line)
{
	switch (line->id) {
	case LISTED_WEIGHT:
		member->weight = (int)line->number[0];
		break;
	case LISTED_NEED:
		add_need(member, line);
		break;
	case LISTED_UNFIT:
		format_copy(member->unfit.uuid, sizeof(member->unfit.uuid), line->word[0]);
		member->unfit.needs = line->number[0];
		member->unfit.there = line->number[1];
		break;
	case LISTED_TURN:
		member->wait_ms = line->number[0];
		member->left_ms = line->number[1];
		member->turns = (unsigned int)line->number[2];
		member->waits_for = (uint32_t)line->number[3];
		break;
	default:
		if (line->id < FROM_DAEMON)
			line_store(line, &fields[line->id], member);
	}
}

static int take_line(void *arg, const struct line *line)
{
	struct turns_list *list = arg;

	switch (line->id) {
	case LISTED_MEMBER:
		return add_member(list, line);
	case LISTED_DAEMON:
		list->pid = (int)line->number[0];
		format_copy(list->version, sizeof(list->version), line->text);
		return 0;
	case LISTED_GPU:
		add_gpu(list, line);
		return 0;
	default:
		if (list->nmembers)
			describe(&list->members[list->nmembers - 1], line);
		return 0;
	}
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
