/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/answers.h"
#include "tools/daemon/events.h"
#include "tools/daemon/gpus.h"
#include "tools/daemon/members.h"
#include "tools/daemon/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool may_see(const struct peer *peer, uid_t uid)
{
	return peer->uid == 0 || peer->uid == uid;
}

static const char *state_of(const struct daemon_gpu *gpu)
{
	if (!rules_has_turns(gpu->uuid))
		return "excluded";
	return gpu->drained ? "drained" : "open";
}

static void say_gpus(struct peer *peer)
{
	const struct daemon_gpu *gpu;

	for (int i = 0; (gpu = gpus_get(i)); i++)
		peer_say(peer, "gpu %s %zu %zu %zu %zu %s", gpu->uuid, gpu->total, gpu->used,
			 gpu->other, gpu->capacity, state_of(gpu));
}

static void say_member(struct peer *peer, const struct member *m, double now)
{
	struct turns_view view = {.unfit_on = -1};

	members_look(m, now, &view);
	peer_say(peer, "member %" PRIu32 " %d %u %s", m->id, m->peer->pid, m->peer->uid,
		 m->silent ? "silent" : view.state);
	if (may_see(peer, m->peer->uid)) {
		peer_say(peer, "id %s", m->job);
		if (m->name[0])
			peer_say(peer, "name %s", m->name);
		peer_say(peer, "command %s", m->command);
	}
	peer_say(peer, "class %s", m->class == TURNS_INTERACTIVE ? "interactive" : "batch");
	peer_say(peer, "weight %d", m->weight);
	for (int i = 0; gpus_get(i); i++)
		if (m->need[i].told)
			peer_say(peer, "need %s %zu %zu", gpus_get(i)->uuid, m->need[i].mapped,
				 m->need[i].total);
	if (view.unfit_on >= 0)
		peer_say(peer, "unfit %s %zu %zu", gpus_get(view.unfit_on)->uuid, view.needs,
			 view.there);
	peer_say(peer, "turn %.0f %.0f %u %" PRIu32, view.wait_ms, view.left_ms, view.handovers,
		 view.waits_for);
}

static void list(struct peer *peer, double now)
{
	peer_say(peer, "daemon %d " CUDAW_VERSION, getpid());
	say_gpus(peer);
	for (const struct member *m = members_next(NULL); m; m = members_next(m))
		say_member(peer, m, now);
}

static void say_event(struct peer *peer, const struct event *event)
{
	bool seen = may_see(peer, event->uid);

	peer_say(peer, "event %" PRIu64 " %" PRIu64 " %s %d %u %s %s %s", event->number,
		 event->unix_ms, event->kind, event->pid, event->uid,
		 seen && event->id[0] ? event->id : "-", seen && event->name[0] ? event->name : "-",
		 seen ? event->text : "-");
}

static void say_events(struct peer *peer)
{
	const struct event *event;

	while (!peer->gone && (event = events_next(peer->event))) {
		say_event(peer, event);
		peer->event = event->number;
	}
}

void answers_follow(void)
{
	for (struct peer *peer = peers_next(NULL); peer; peer = peers_next(peer))
		if (peer->follows)
			say_events(peer);
}

static bool is_meant(const struct member *m, const char *word)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", m->peer->pid);
	return !strcmp(word, m->job) || !strcmp(word, m->name) || !strcmp(word, pid);
}

/*
 * Other users choose the names and IDs of their jobs, so that one of theirs counts only if no other is
 * meant. Returns the last line.
 */
static const char *give(struct peer *peer, const char *word, double now)
{
	bool given = false, denied = false, silent = false;

	for (const struct member *m = members_next(NULL); m; m = members_next(m)) {
		bool mine = may_see(peer, m->peer->uid);

		if (!is_meant(m, word))
			continue;
		given |= mine && !m->silent;
		silent |= mine && m->silent;
		denied |= !mine;
		if (mine && !m->silent)
			members_give(m, now);
	}
	if (given)
		return "end " END_OK;
	if (silent)
		return "end " END_TIMEOUT " the job gives no answer: it may be stopped";
	return denied ? "end " END_DENIED " the job belongs to another user"
		      : "end " END_INVALID " no member of the daemon has this id, name or PID";
}

/* Of the daemon's user or root. Returns the last line. */
static const char *obey(struct peer *peer, const struct line *line)
{
	char why[RULES_WHY];

	if (!may_see(peer, geteuid()))
		return "end " END_DENIED " this is for the daemon's user and root";
	if (line->word == LINE_SET && rules_set(peer, line->text, why)) {
		peer_say(peer, "note %s", why);
		return "end " END_INVALID " nothing was set";
	}
	if (line->word != LINE_SET && gpus_drain(line->uuid, line->word == LINE_DRAIN)) {
		peer_say(peer, "note the daemon has as many GPUs as it can");
		return "end " END_INVALID " nothing was drained";
	}
	if (line->word != LINE_SET)
		rules_note(peer, line->word == LINE_DRAIN ? "drained" : "undrained", line->uuid);
	return "end " END_OK;
}

bool answers_take(struct peer *peer, const struct line *line, double now)
{
	const char *end = "end " END_OK;

	switch (line->word) {
	case LINE_LAUNCH:
		peer->kind = PEER_LAUNCHED;
		peer_say(peer, "%s", end);
		return true;
	case LINE_LIST:
		list(peer, now);
		break;
	case LINE_EVENTS:
		if (*line->text && strcmp(line->text, "follow") != 0)
			return false;
		peer->follows = *line->text;
		say_events(peer);
		break;
	case LINE_GIVE:
		end = give(peer, line->text, now);
		break;
	case LINE_SET:
	case LINE_DRAIN:
	case LINE_UNDRAIN:
		end = obey(peer, line);
		break;
	default:
		return false;
	}
	peer->kind = PEER_COMMAND;
	if (peer->follows)
		return true;
	peer_say(peer, "%s", end);
	peer_end(peer);
	return true;
}
