/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/asking.h"
#include "checkpoint/sharing/back.h"
#include "checkpoint/sharing/imports.h"
#include "common/limits.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define LOOKS \
	50 /* at all so often; then every SHARING_STATE_MS, of a wait that may last for hours */
#define SAVED_MS 600000 /* for the others to save their memory */

static void set_stage(enum sharing_stage stage)
{
	sharing_say_stage(stage, SHARING_WAITS);
}

static void set_vote(enum sharing_vote vote)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.vote = vote;
	pthread_mutex_unlock(&sharing.lock);
}

void sharing_pause(void)
{
	set_stage(SHARING_PAUSING);
}

static enum verdict judge_resting(const struct sharing_member *m)
{
	return sharing_is_gone(m) || m->answer.stage == SHARING_RESTING ||
			       m->answer.stage == SHARING_SAVED
		       ? GO_ON
		       : NOT_YET;
}

int sharing_rest(struct sharing_wait *w)
{
	double until_ms = sharing_waited_ms() + SHARING_BEGIN_MS;
	const struct sharing_member *m;
	enum verdict verdict;
	bool late;

	objects_close_exports();
	pthread_mutex_lock(&sharing.lock);
	sharing.cycle++;
	pthread_mutex_unlock(&sharing.lock);
	set_stage(SHARING_RESTING);
	for (;;) {
		if (!sharing_gather(w->cancel))
			continue;
		if (sharing.nmembers == SHARING_PROCESSES) {
			snprintf(w->text, sizeof(w->text),
				 "%d processes share memory with this one", SHARING_PROCESSES);
			return -ENOTSUP;
		}
		m = sharing_find(judge_resting, &verdict);
		if (!m)
			break;
		late = sharing_waited_ms() > until_ms;
		if (sharing_is_cancelled(w))
			return sharing_fail_wait(w, -ECANCELED, m, "has not come to rest");
		if (sharing_is_unreached(m->error) && late)
			return sharing_fail_wait(w, -EHOSTUNREACH, m, "");
		if (!m->error && m->answer.stage == SHARING_RUNNING && late)
			return sharing_fail_wait(w, -ENOTSUP, m, "does not pause with it");
		if (late && limits_ms() > w->deadline_ms)
			return sharing_fail_wait(w, -ETIME, m, "has not come to rest");
		usleep(SHARING_LOOK_MS * 1000);
	}
	return sharing_check_imports(w);
}

/*
 * No way back: it has gone on, or may have. It counts on this process also in a later pause than the one
 * in which this process has met it.
 */
static bool passed_saved(const struct sharing_member *m)
{
	return m->answer.stage > SHARING_SAVED ||
	       (m->answer.stage == SHARING_SAVED && m->answer.vote == SHARING_ON);
}

static enum verdict judge_saved(const struct sharing_member *m)
{
	if (sharing_is_gone(m))
		return !m->lost && sharing_has_imports(m, NULL) ? LOST : GO_ON;
	if (passed_saved(m))
		return GO_ON;
	if (m->answer.cycle != m->cycle || m->answer.stage < SHARING_RESTING)
		return WITHDREW;
	return m->answer.stage == SHARING_RESTING || m->answer.vote == SHARING_OFF ? NOT_YET
										   : GO_ON;
}

/* It has gone on, and runs, or pauses again. */
static bool has_run(const struct sharing_member *m)
{
	return m->answer.cycle != m->cycle || m->answer.stage < SHARING_RESTING;
}

/* It may still give up. */
static enum verdict judge_complete(const struct sharing_member *m)
{
	if (sharing_is_gone(m) || has_run(m))
		return GO_ON;
	if (sharing_judge_failed(m) == FAILED)
		return FAILED;
	if (sharing_has_old_memory(m))
		return STALE;
	if (m->answer.stage != SHARING_WHOLE ||
	    (m->answer.oldest != SHARING_NO_BUILD && m->answer.oldest != sharing.build))
		return NOT_YET;
	return sharing_has_imports(m, &m->answer.build) ? STALE : GO_ON;
}

static enum verdict judge_whole(const struct sharing_member *m)
{
	enum verdict verdict = judge_complete(m);

	if (verdict == GO_ON && !sharing_is_gone(m) && !has_run(m) && m->answer.vote == SHARING_OFF)
		return NOT_YET;
	return verdict;
}

static bool passed_whole(const struct sharing_member *m)
{
	return has_run(m) || (m->answer.stage == SHARING_WHOLE && m->answer.vote == SHARING_ON);
}

/*
 * One that cannot be asked, as it is stopped, say, has not gone on if it has not asked this process for the last
 * time. From now on it finds that this process has given up.
 */
static bool may_have_passed(const struct sharing_member *m)
{
	bool heard;

	pthread_mutex_lock(&sharing.lock);
	heard = m->heard;
	pthread_mutex_unlock(&sharing.lock);
	return heard;
}

/* True if this process may go back: nobody has gone on. */
static bool withdraw(bool (*passed)(const struct sharing_member *))
{
	bool may = true;

	set_vote(SHARING_OFF);
	sharing_ask_all(SHARING_STATE);
	for (size_t i = 0; i < sharing.nmembers && may; i++) {
		const struct sharing_member *m = &sharing.members[i];

		may = sharing_is_gone(m) || !(m->error ? may_have_passed(m) : passed(m));
	}
	if (!may)
		set_vote(SHARING_WAITS);
	return may;
}

/* Get what the member has made anew since it was imported. */
static int renew_imports(struct sharing_wait *w, const struct sharing_member *m)
{
	int error = sharing_release_imports(w, m);

	return error ? error : sharing_get_imports(w);
}

/*
 * True if @m does not go back, whatever its user and its time limit say: it was whole when this process agreed to
 * the pact, and if it had gone back since, the pact would not have said GO. Unless it is in none.
 */
static bool is_bound(const struct sharing_wait *w, const struct sharing_member *m)
{
	return w->pact && !has_run(m) && m->answer.stage == SHARING_WHOLE;
}

/* Whether the wait for @m is to end; 0: not yet. @bound: it lasts until @m goes on, or ends. */
static int give_up(struct sharing_wait *w, const struct sharing_member *m, enum verdict verdict,
		   bool bound, bool late)
{
	if (verdict == STALE)
		return renew_imports(w, m);
	if (verdict == WITHDREW)
		return sharing_fail_wait(w, -ECANCELED, m, "has given up its pause");
	if (verdict == LOST)
		return sharing_fail_wait(w, -ECANCELED, m, "has ended");
	if (verdict == FAILED)
		return sharing_follow(w, m);
	if (bound)
		return 0;
	if (sharing_is_cancelled(w))
		return sharing_fail_wait(w, -ECANCELED, m, "was waited for");
	if (verdict == SILENT)
		return sharing_fail_wait(w, -EHOSTUNREACH, m, "");
	return late || sharing_is_late(w) ? sharing_fail_wait(w, -ETIME, m, "is not as far") : 0;
}

/*
 * Go on together with all, or not at all, within @limit_ms (0: none) and the
 * user's limit. Without a way back for anybody on success.
 *
 * tests/unit/checkpoint/test_sharing_model.c tries all interleavings of these steps and of withdraw().
 * A change of a step here needs the same change there.
 */
static int agree(struct sharing_wait *w, double limit_ms,
		 enum verdict (*judge)(const struct sharing_member *),
		 bool (*passed)(const struct sharing_member *))
{
	double begin_ms = sharing_waited_ms();
	struct sharing_member *m;
	enum verdict verdict;
	bool on = false;

	for (;;) {
		int error;

		sharing_ask_all(on ? SHARING_LAST_STATE : SHARING_STATE);
		m = sharing_find(judge, &verdict);
		if (!m && on)
			return 0;
		on = !m;
		set_vote(on ? SHARING_ON : SHARING_WAITS);
		if (on)
			continue;
		error = give_up(w, m, verdict, is_bound(w, m),
				limit_ms && sharing_waited_ms() - begin_ms > limit_ms);
		if (error && withdraw(passed))
			return error;
		/* Some have gone on, so this one does: its own memory is safe. */
		m->lost |= verdict == LOST;
		usleep(SHARING_LOOK_MS * 1000);
	}
}

int sharing_saved(struct sharing_wait *w)
{
	int error;

	set_stage(SHARING_SAVED);
	error = agree(w, SAVED_MS, judge_saved, passed_saved);
	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].cycle = sharing.members[i].answer.cycle;
	return error;
}

void sharing_resume(void)
{
	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].failed_ms = 0;
	sharing.follows = sharing.only_paused = false;
	pthread_mutex_lock(&sharing.lock);
	if (sharing.stage == SHARING_RELEASED)
		sharing.vote = SHARING_WAITS;
	pthread_mutex_unlock(&sharing.lock);
}

void sharing_rebuilt(void)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.build++;
	pthread_mutex_unlock(&sharing.lock);
	set_stage(SHARING_REBUILT);
	objects_open_exports();
}

int sharing_complete(struct sharing_wait *w)
{
	struct sharing_member *m;
	enum verdict verdict;
	int error = 0;

	sharing_say_stage(SHARING_WHOLE, SHARING_OFF);
	for (int looks = 0; !error; looks++) {
		sharing_ask_all(SHARING_STATE);
		m = sharing_find(judge_complete, &verdict);
		if (!m)
			return 0;
		error = give_up(w, m, verdict, false, false);
		usleep((looks < LOOKS ? SHARING_LOOK_MS : SHARING_STATE_MS) * 1000);
	}
	return error;
}

int sharing_remains(struct sharing_wait *w)
{
	struct sharing_member *m;
	enum verdict verdict;

	sharing_ask_all(SHARING_STATE);
	m = sharing_find(judge_complete, &verdict);
	if (verdict == NOT_YET || verdict == STALE)
		return -EAGAIN;
	return m ? give_up(w, m, verdict, false, false) : 0;
}

int sharing_whole(struct sharing_wait *w)
{
	set_stage(SHARING_WHOLE);
	return agree(w, 0, judge_whole, passed_whole);
}

void sharing_run(void)
{
	sharing_drop_members();
	set_stage(SHARING_RUNNING);
	objects_open_exports();
}
