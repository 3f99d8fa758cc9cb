/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/commands.h"
#include "tools/daemon/hooks/events.h"
#include "tools/daemon/gpus.h"
#include "tools/daemon/members.h"
#include "tools/daemon/rules.h"
#include "common/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool may_see(const struct connection *connection, uid_t uid)
{
	return connection->uid == 0 || connection->uid == uid;
}

static const char *state_of(const struct daemon_gpu *gpu)
{
	if (!rules_has_turns(gpu->uuid))
		return "excluded";
	return gpu->drained ? "drained" : "open";
}

static void say_gpus(struct connection *connection)
{
	const struct daemon_gpu *gpu;

	for (int i = 0; (gpu = gpus_get(i)); i++)
		connection_say(connection, "gpu %s %zu %zu %zu %zu %s", gpu->uuid, gpu->total,
			       gpu->used, gpu->other, gpu->capacity, state_of(gpu));
}

static void say_member(struct connection *connection, const struct member *m, double now)
{
	struct turns_view view = {.unfit_on = -1, .context = "in"};

	members_look(m, now, &view);
	connection_say(connection, "member %" PRIu32 " %d %u %s", m->id, m->connection->pid,
		       m->connection->uid, m->silent ? "silent" : view.state);
	if (may_see(connection, m->connection->uid)) {
		connection_say(connection, "id %s", m->job);
		if (m->name[0])
			connection_say(connection, "name %s", m->name);
		connection_say(connection, "command %s", m->command);
	}
	connection_say(connection, "class %s",
		       m->class == TURNS_INTERACTIVE ? "interactive" : "batch");
	connection_say(connection, "weight %d", m->weight);
	for (int i = 0; gpus_get(i); i++)
		if (m->need[i].told)
			connection_say(connection, "need %s %zu %zu", gpus_get(i)->uuid,
				       m->need[i].mapped, m->need[i].total);
	if (view.unfit_on >= 0)
		connection_say(connection, "unfit %s %zu %zu", gpus_get(view.unfit_on)->uuid,
			       view.needs, view.there);
	if (strcmp(view.context, "in") != 0)
		connection_say(connection, "context %s", view.context);
	connection_say(connection, "turn %.0f %.0f %u %" PRIu32, view.wait_ms, view.left_ms,
		       view.handovers, view.waits_for);
}

static void list(struct connection *connection, double now)
{
	connection_say(connection, "daemon %d %s", getpid(), cudaw_version);
	say_gpus(connection);
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		say_member(connection, m, now);
}

static void say_event(struct connection *connection, const struct event *event)
{
	bool seen = may_see(connection, event->uid);

	connection_say(connection, "event %" PRIu64 " %" PRIu64 " %s %d %u %s %s %s", event->number,
		       event->unix_ms, event->kind, event->pid, event->uid,
		       seen && event->id[0] ? event->id : "-",
		       seen && event->name[0] ? event->name : "-", seen ? event->text : "-");
}

static void say_events(struct connection *connection)
{
	const struct event *event;

	while (!connection->gone && (event = events_next(connection->event))) {
		say_event(connection, event);
		connection->event = event->number;
	}
}

void commands_follow(void)
{
	for (struct connection *connection = connections_next(NULL); connection;
	     connection = connections_next(connection))
		if (connection->follows)
			say_events(connection);
}

static bool is_meant(const struct member *m, const char *word)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", m->connection->pid);
	return !strcmp(word, m->job) || !strcmp(word, m->name) || !strcmp(word, pid);
}

/*
 * Other users choose the names and IDs of their jobs, so that one of theirs counts only if no other is
 * meant.
 */
static void give(struct connection *connection, const char *word, double now)
{
	bool given = false, denied = false, silent = false;

	for (const struct member *m = members_next(NULL); m; m = members_next(m)) {
		bool mine = may_see(connection, m->connection->uid);

		if (!is_meant(m, word))
			continue;
		given |= mine && !m->silent;
		silent |= mine && m->silent;
		denied |= !mine;
		if (mine && !m->silent)
			members_give(m, now);
	}
	if (given)
		connection_answer(connection, END_OK, NULL);
	else if (silent)
		connection_answer(connection, END_TIMEOUT,
				  "the job gives no answer: it may be stopped");
	else if (denied)
		connection_answer(connection, END_DENIED, "the job belongs to another user");
	else
		connection_answer(connection, END_INVALID,
				  "no job that takes turns has this ID, name or PID");
}

static void set(struct connection *connection, const char *text)
{
	char why[RULES_WHY];

	if (!rules_set(connection, text, why)) {
		connection_answer(connection, END_OK, NULL);
		return;
	}
	connection_say(connection, "note %s", why);
	connection_answer(connection, END_INVALID, "nothing was set");
}

static void drain(struct connection *connection, const char *uuid, bool drained)
{
	if (!gpus_drain(uuid, drained)) {
		rules_note(connection, drained ? "drained" : "undrained", uuid);
		connection_answer(connection, END_OK, NULL);
		return;
	}
	connection_say(connection, "note the daemon has as many GPUs as it can");
	connection_answer(connection, END_INVALID, "nothing was drained");
}

/* Of the daemon's user or root. */
static void obey(struct connection *connection, const struct line *line)
{
	if (!may_see(connection, geteuid()))
		connection_answer(connection, END_DENIED, "this is for the daemon's user and root");
	else if (line->id == COMMAND_SET)
		set(connection, line->text);
	else
		drain(connection, line->word[0], line->id == COMMAND_DRAIN);
}

bool commands_take(struct connection *connection, const struct line *line, double now)
{
	switch (line->id) {
	case COMMAND_LAUNCH:
		connection->kind = CONNECTION_LAUNCHED;
		connection_say(connection, "end %s", end_names[END_OK]);
		return true;
	case COMMAND_LIST:
		list(connection, now);
		connection_answer(connection, END_OK, NULL);
		break;
	case COMMAND_EVENTS:
		if (*line->text && strcmp(line->text, "follow") != 0)
			return false;
		connection->follows = *line->text;
		say_events(connection);
		if (!connection->follows)
			connection_answer(connection, END_OK, NULL);
		break;
	case COMMAND_GIVE:
		give(connection, line->text, now);
		break;
	case COMMAND_SET:
	case COMMAND_DRAIN:
	case COMMAND_UNDRAIN:
		obey(connection, line);
		break;
	default:
		return false;
	}
	connection->kind = CONNECTION_COMMAND;
	return true;
}
