/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/back.h"
#include "checkpoint/sharing/asking.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RELEASE_MS 30000 /* for the others to give memory back; in a yield, they may take longer */

bool sharing_has_old_memory(const struct sharing_member *m)
{
	struct object_import import = {0};

	if (m->error || m->answer.cycle != m->cycle || m->answer.stage != SHARING_RELEASED)
		return false;
	while (objects_next_import(&import))
		if (!import.away && !import.left &&
		    !memcmp(import.name.instance, m->process.instance, OBJECT_KEY))
			return true;
	return false;
}

int sharing_release_imports(struct sharing_wait *w, const struct sharing_member *m)
{
	w->error = objects_release_imports(m->process.instance);
	if (!w->error)
		return 0;
	snprintf(w->text, sizeof(w->text), "imported memory cannot be given back");
	return -EIO;
}

static enum verdict judge_released(const struct sharing_member *m)
{
	if (sharing_is_gone(m) || m->answer.cycle != m->cycle)
		return GO_ON;
	return m->answer.stage == SHARING_RESTING || m->answer.stage == SHARING_SAVED ? NOT_YET
										      : GO_ON;
}

/* It has given back all that it can, and does not try again before it resumes. */
static bool keeps_memory(const struct sharing_member *m)
{
	return !m->error && m->answer.cycle == m->cycle && m->answer.stage == SHARING_RELEASED;
}

/*
 * A member that has memory of this process, or may have, and best one that keeps it; NULL: none. Exports are closed.
 * Others are not asked: they may be stopped.
 */
static struct sharing_member *find_holder(void)
{
	struct sharing_member *found = NULL;
	struct sharing_answer answer;

	for (size_t i = 0; i < sharing.nmembers; i++) {
		struct sharing_member *m = &sharing.members[i];

		if (!m->holds)
			continue;
		sharing_ask_member(m, SHARING_STATE, &answer);
		pthread_mutex_lock(&sharing.lock);
		m->holds = m->error ? !sharing_is_gone(m) : answer.holds == SHARING_HOLDS_MEMORY;
		pthread_mutex_unlock(&sharing.lock);
		if (m->holds && (!found || keeps_memory(m)))
			found = m;
	}
	return found;
}

/* In a pause all come out of SAVED. */
static struct sharing_member *find_unreleased(void)
{
	enum verdict verdict;

	sharing_ask_all(SHARING_STATE);
	return sharing_find(judge_released, &verdict);
}

static int await_released(struct sharing_wait *w, double limit_ms)
{
	double until_ms = sharing_waited_ms() + limit_ms;
	bool pauses = sharing.stage != SHARING_RELEASED;
	size_t held = objects_shared_held();

	/* Else it may have said that it has failed to resume. */
	if (pauses) {
		sharing_say_stage(SHARING_RELEASED, SHARING_WAITS);
		sharing.only_paused = true;
	}
	if (held) {
		snprintf(w->text, sizeof(w->text), "%zu shared allocation%s on the GPU", held,
			 held == 1 ? " stays" : "s stay");
		return -EBUSY;
	}
	for (;;) {
		const struct sharing_member *m = pauses ? find_unreleased() : NULL;

		pauses = m;
		if (!m)
			m = find_holder();
		if (!m)
			return 0;
		if (sharing_is_cancelled(w))
			return sharing_fail_wait(w, -ECANCELED, m, "was waited for");
		if (sharing_waited_ms() > until_ms ||
		    (sharing.only_paused && !pauses && keeps_memory(m)))
			return sharing_fail_wait(w, -ETIME, m, "has not given its memory back");
		usleep(SHARING_LOOK_MS * 1000);
	}
}

int sharing_released(struct sharing_wait *w)
{
	return await_released(w, RELEASE_MS);
}

int sharing_gone_back(struct sharing_wait *w)
{
	return await_released(w, SHARING_SILENT_MS);
}

void sharing_back(void)
{
	objects_close_exports();
	sharing_say_stage(SHARING_RELEASED, SHARING_WAITS);
}

/* One that follows another one says nothing: it is waited for as before, once the other one resumes. */
void sharing_failed(void)
{
	pthread_mutex_lock(&sharing.lock);
	if (sharing.stage == SHARING_RELEASED && !sharing.follows)
		sharing.vote = SHARING_OFF;
	pthread_mutex_unlock(&sharing.lock);
}
