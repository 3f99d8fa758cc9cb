/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/history.h"
#include "checkpoint/engine/engine.h"
#include "common/system/forks.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "common/text.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "history: "
#include "common/log.h"

static struct rundir_home home;

/* As the journal was told. */
static struct {
	bool paused, freed;
	enum journal_kind request; /* the last one without an outcome; an outcome: none */
	struct journal_by by;      /* who asked */
} told = {.request = JOURNAL_KINDS};

static void forget_in_child(void)
{
	told.paused = told.freed = false;
	told.request = JOURNAL_KINDS;
}
FORKS_CHILD(forget_in_child);

void history_init(void)
{
	const char *why;

	if (rundir_find_home(&home, &why))
		home.path[0] = '\0';
}

/* An event that cannot be written is no fault of the program's. */
static void tell(struct journal_event *event)
{
	char id[RUNDIR_ID_SIZE];
	const char *why;
	int dir = *home.path ? rundir_open(home.path, home.user, &why) : -1, err;

	if (dir < 0)
		return;
	rundir_job_id(id);
	event->pid = getpid();
	event->id = id;
	event->name = setting_text(SETTING_NAME);
	err = journal_append(dir, home.user, event);
	close(dir);
	if (err)
		pr_debug("%s/" JOURNAL ": %s", home.path, error_text(-err));
}

static void tell_outcome(enum journal_kind kind, const char *text)
{
	told.request = JOURNAL_KINDS;
	tell(&(struct journal_event){.kind = kind, .bytes = engine_saved_bytes(), .text = text});
}

static void find_peer(int fd, struct journal_by *by)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	by->uid = peer.uid;
	by->pid = peer.pid;
}

void history_asked(enum journal_kind request, int fd, const struct journal_by *sender,
		   const char *text)
{
	struct journal_by by = {0};

	if (fd < 0)
		by = *sender;
	else
		find_peer(fd, &by);
	if (request == told.request && by.uid == told.by.uid && by.pid == told.by.pid)
		return;
	journal_find_command(&by);
	told.request = request;
	told.by = by;
	tell(&(struct journal_event){.kind = request, .by = &by, .text = text});
}

void history_state(bool wanted)
{
	bool paused = wanted && engine_is_paused() && !engine_is_partly_out();
	bool freed = paused && engine_is_off_gpu();

	if (paused && !told.paused)
		tell_outcome(JOURNAL_PAUSED, NULL);
	if (freed && !told.freed)
		tell_outcome(JOURNAL_FREED, NULL);
	if (told.paused && !engine_is_paused()) {
		tell_outcome(JOURNAL_RUNNING, NULL);
		told.paused = told.freed = false;
	}
	told.paused |= paused;
	told.freed |= freed;
}

void history_saved(const char *path)
{
	tell_outcome(JOURNAL_SAVED, path);
}

void history_failed(const char *operation, enum end_code code, const char *why)
{
	if (code == END_BUSY || code == END_AGAIN)
		return;
	told.request = JOURNAL_KINDS;
	tell(&(struct journal_event){.kind = JOURNAL_FAILED, .operation = operation, .text = why});
}
