/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/imports.h"
#include "checkpoint/ledger/handles.h"
#include "checkpoint/sharing/asking.h"
#include "checkpoint/sharing/back.h"
#include "checkpoint/sharing/sharers.h"
#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AHEAD    8    /* imports that are asked for at once */
#define CLOSE_MS 5000 /* for imports to be closed whose memory has been freed */

static const char *describe_exporter(const struct object_name *name, char buf[SHARING_WHO])
{
	const struct sharing_process exporter = sharing_exporter(name);

	return sharing_describe(name->pid, sharing_find_member(&exporter), buf);
}

/*
 * True if the exporter of an import has ended, or has not the memory any more. One that has not answered
 * just now is not asked for each import, as it may take long not to answer.
 */
static bool is_orphan(const struct object_name *name)
{
	const struct sharing_process exporter = sharing_exporter(name);
	struct sharing_member *m;
	struct sharing_answer answer;
	int error;

	if (sharers_is_self(&exporter))
		return !objects_have_key(name->key);
	m = sharing_find_member(&exporter);
	if (m && m->error)
		return sharing_is_gone(m);
	error = sharing_ask(&exporter, SHARING_STATE, name->key, &answer);
	if (m)
		m->error = error;
	return error == -ESRCH || (!error && answer.result == SHARING_UNKNOWN);
}

int sharing_check_imports(struct sharing_wait *w)
{
	struct object_import import = {0};
	char who[SHARING_WHO];

	while (objects_next_import(&import)) {
		bool gone;

		if (sharing_is_cancelled(w))
			return -ECANCELED;
		gone = is_orphan(&import.name);
		if (!gone && import.left) {
			snprintf(w->text, sizeof(w->text),
				 "memory of %s cannot be given back: others can reach it here "
				 "(a dma-buf, a multicast object or CUDAW_TO_DRIVER=exports)",
				 describe_exporter(&import.name, who));
			return -EPERM;
		}
		if (!gone || import.pending)
			continue;
		objects_import_orphan(import.handle);
		sharing.orphan_ms = clock_ms();
		handles_add(import.handle,
			    import.name.legacy ? DRIVER_MEMORY_IPC_IMPORT
					       : DRIVER_MEMORY_VMM_IMPORT,
			    0);
	}
	return 0;
}

bool sharing_may_close(void)
{
	return sharing.orphan_ms && clock_ms() - sharing.orphan_ms < CLOSE_MS;
}

/*
 * -ENOLINK: the resume of a member has failed. Nobody runs without it, and the exporter that this process
 * waits for may itself have given up because of it. Not at each look, as all members do so.
 */
static int check_failed(struct sharing_wait *w, double *asked_ms)
{
	const struct sharing_member *m;
	struct sharing_answer answer;
	enum verdict verdict;
	int error = 0;

	if (clock_ms() - *asked_ms < SHARING_STATE_MS)
		return 0;
	for (size_t i = 0; i < sharing.nmembers && !error; i++) {
		sharing_ask_member(&sharing.members[i], SHARING_STATE, &answer);
		error = sharing_ended(w);
		if (!error && sharing_has_old_memory(&sharing.members[i]))
			error = sharing_release_imports(w, &sharing.members[i]);
	}
	*asked_ms = clock_ms();
	m = sharing_find(sharing_judge_failed, &verdict);
	return verdict == FAILED ? sharing_follow(w, m) : error;
}

/* An import that its exporter has been asked for. */
struct ask {
	struct object_import import;
	struct sharing_member *exporter; /* NULL: this process, or not known */
	bool probe;                      /* the exporter has not given the one before it */
	double asked_ms;                 /* sharing_fetch_end() takes these */
	int with;
};

/* One look at all imports that are away, in the order of their handles. */
struct look {
	struct object_import last;
	struct ask asks[AHEAD]; /* from @first on, in a ring */
	size_t first, n;
	bool left; /* there are some that an exporter does not give yet */
	bool got;
};

/* Until it is imported, or given up, its descriptor may be on its way. */
static void count_ask(struct sharing_member *exporter, int n)
{
	if (!exporter)
		return;
	pthread_mutex_lock(&sharing.lock);
	exporter->asks += n;
	pthread_mutex_unlock(&sharing.lock);
}

/* Ask for the next one. Of an exporter that does not give any yet only one in each look. False: there is none. */
static bool ask_next(struct look *look)
{
	while (objects_next_import(&look->last)) {
		const struct sharing_process exporter = sharing_exporter(&look->last.name);
		struct sharing_member *m = sharing_find_member(&exporter);

		if (!look->last.away || look->last.pending)
			continue;
		if (m && m->busy && m->probed) {
			look->left = true;
			continue;
		}
		if (m)
			m->probed = true;
		count_ask(m, 1);
		look->asks[(look->first + look->n++) % AHEAD] =
			(struct ask){look->last, m, m && m->busy, sharing_waited_ms(),
				     sharing_fetch_begin(&look->last.name)};
		return true;
	}
	return false;
}

/* True if the exporter is asked again after @error, as it may give the memory later. */
static bool asks_again(struct sharing_member *m, int error)
{
	if (!sharing_is_unreached(error)) {
		m->unreached_ms = 0;
		return error == -EBUSY || error == -EAGAIN;
	}
	if (!m->unreached_ms)
		m->unreached_ms = sharing_waited_ms();
	return sharing_waited_ms() - m->unreached_ms < SHARING_LISTEN_MS;
}

/* The import was not given. 0: it may be, later. */
static int put_off(struct sharing_wait *w, struct look *look, const struct ask *ask, int error)
{
	char why[SHARING_WHY], who[SHARING_WHO];

	sharing_why(&ask->import.name, error, why, sizeof(why));
	snprintf(w->text, sizeof(w->text), "memory of %s: it %s",
		 describe_exporter(&ask->import.name, who), why);
	if (!ask->exporter || !asks_again(ask->exporter, error))
		return error;
	ask->exporter->busy = true;
	look->left = true;
	return 0;
}

/* The answer for @ask, which is waited for, and the import. */
static int take(struct sharing_wait *w, struct look *look, const struct ask *ask)
{
	const struct object_import *import = &ask->import;
	struct sharing_answer answer;
	char who[SHARING_WHO];
	double begin_ms;
	int fd, error;

	/* It did not give one before this. */
	if (ask->exporter && ask->exporter->busy && !ask->probe) {
		look->left = true;
		if (ask->with >= 0)
			close(ask->with);
		return 0;
	}
	error = sharing_fetch_end(&sharing.patience, ask->asked_ms, &import->name, ask->with, &fd,
				  &answer);
	if (error)
		return put_off(w, look, ask, error);
	if (ask->exporter) {
		ask->exporter->busy = false;
		ask->exporter->unreached_ms = 0;
	}
	look->got = true;
	begin_ms = clock_ms();
	w->error = objects_import(import->handle, fd, answer.size, answer.build);
	close(fd);
	w->got_ms += clock_ms() - begin_ms;
	if (!w->error)
		return 0;
	snprintf(w->text, sizeof(w->text), "memory of %s", describe_exporter(&import->name, who));
	return -EIO;
}

/* While one is imported, the exporters answer for the next ones. */
static int get_those_ready(struct sharing_wait *w, struct look *look)
{
	bool more = true;
	int error = 0;

	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].probed = false;
	for (;;) {
		struct ask *ask = &look->asks[look->first];

		while (more && !error && look->n < AHEAD)
			more = ask_next(look);
		if (!look->n)
			return error;
		look->first = (look->first + 1) % AHEAD;
		look->n--;
		if (!error)
			error = sharing_ended(w);
		if (!error)
			error = take(w, look, ask);
		else if (ask->with >= 0)
			close(ask->with);
		count_ask(ask->exporter, -1);
	}
}

int sharing_get_imports(struct sharing_wait *w)
{
	double asked_ms = 0;

	snprintf(w->text, sizeof(w->text), "memory of other processes was not there in time");
	for (size_t i = 0; i < sharing.nmembers; i++) {
		sharing.members[i].busy = true;
		sharing.members[i].unreached_ms = 0;
	}
	for (;;) {
		struct look look = {0};
		int error = get_those_ready(w, &look);

		if (error || !look.left)
			return error;
		if (look.got)
			continue;
		error = sharing_ended(w);
		if (!error)
			error = check_failed(w, &asked_ms);
		if (error)
			return error;
		usleep(SHARING_LOOK_MS * 1000);
	}
}

bool sharing_has_imports(const struct sharing_member *m, const uint64_t *build)
{
	struct object_import import = {0};

	while (objects_next_import(&import))
		if (import.name.pid == m->process.pid &&
		    !memcmp(import.name.instance, m->process.instance, OBJECT_KEY) &&
		    !import.pending && (!build || import.away || import.build != *build))
			return true;
	return false;
}
