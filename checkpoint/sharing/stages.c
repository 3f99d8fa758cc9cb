/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/ledger/handles.h"
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/protocol/pact.h"
#include "common/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "sharing: "
#include "common/log.h"

#define LOOK_MS    2
#define LOOKS      50     /* so often; then every STATE_MS, of a wait that may last for hours */
#define AHEAD      8      /* imports that are asked for at once */
#define STATE_MS   100    /* between two looks at all while one is waited for */
#define BEGIN_MS   3000   /* for the others to begin a pause, or a resume after one that failed */
#define SAVED_MS   600000 /* for the others to save their memory */
#define RELEASE_MS 30000  /* likewise to give it back; in a yield, they may take longer */
#define SILENT_MS  10000  /* for one that lives to answer, as in a pact */
#define WHO        40     /* bytes of the text that says which process */
#define CLOSE_MS   5000   /* for imports to be closed whose memory has been freed */

static double waited_ms(void)
{
	return patience_ms(&sharing.patience);
}

static void begin_stage(enum sharing_stage stage, enum sharing_vote vote)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.stage = stage;
	sharing.vote = vote;
	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].heard = false;
	pthread_mutex_unlock(&sharing.lock);
}

static void set_stage(enum sharing_stage stage)
{
	begin_stage(stage, SHARING_WAITS);
}

static void set_vote(enum sharing_vote vote)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.vote = vote;
	pthread_mutex_unlock(&sharing.lock);
}

/* Ask for the state of a process; with @key, also whether it has that object. */
static int ask_state(const struct sharing_process *process, enum sharing_kind kind,
		     const unsigned char *key, struct sharing_answer *answer)
{
	struct sharing_request request;
	int fd, error;

	sharing_request_begin(&request, kind);
	if (key)
		memcpy(request.key, key, sizeof(request.key));
	error = sharers_ask(&sharing.patience, process, &request, answer, &fd);
	if (fd >= 0)
		close(fd);
	return error;
}

/* In the pause in which this process takes part. */
static bool says_failed(const struct sharing_member *m)
{
	return m->answer.cycle == m->cycle && m->answer.stage == SHARING_RELEASED &&
	       m->answer.vote == SHARING_OFF;
}

static bool is_gone(const struct sharing_member *m)
{
	return m->error == -ESRCH;
}

static void ask_member(struct sharing_member *m, enum sharing_kind kind,
		       struct sharing_answer *answer)
{
	int error = ask_state(&m->process, kind, NULL, answer);

	m->error = error;
	if (!error || is_gone(m))
		m->silent_ms = 0;
	else if (m->silent_ms <= 0)
		m->silent_ms = waited_ms();
	if (!error)
		memcpy(&m->answer, answer, offsetof(struct sharing_answer, sharers));
	if (error || !says_failed(m))
		m->failed_ms = 0;
	else if (!m->failed_ms)
		m->failed_ms = waited_ms();
}

bool sharing_is_joint(void)
{
	return sharing.nmembers;
}

pid_t sharing_other(const int *pids, size_t n)
{
	for (size_t i = 0; i < sharing.nmembers; i++) {
		pid_t pid = sharing.members[i].process.pid;
		bool found = is_gone(&sharing.members[i]);

		for (size_t k = 0; k < n && !found; k++)
			found = pids[k] == pid;
		if (!found)
			return pid;
	}
	return 0;
}

static struct sharing_member *find_member(const struct sharing_process *process)
{
	for (size_t i = 0; i < sharing.nmembers; i++)
		if (sharing_lists(process, 1, &sharing.members[i].process))
			return &sharing.members[i];
	return NULL;
}

static void add_members(const struct sharing_process *list, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (sharers_is_self(&list[i]) || find_member(&list[i]) ||
		    sharing.nmembers == SHARING_PROCESSES)
			continue;
		pthread_mutex_lock(&sharing.lock);
		sharing.members[sharing.nmembers++] =
			(struct sharing_member){.process = list[i], .holds = true};
		pthread_mutex_unlock(&sharing.lock);
	}
}

static void drop_members(void)
{
	pthread_mutex_lock(&sharing.lock);
	sharing.nmembers = 0;
	pthread_mutex_unlock(&sharing.lock);
}

/* False if it is none. */
static bool forget_importer(const struct sharing_process *importer)
{
	uint32_t i = 0;
	bool found;

	pthread_mutex_lock(&sharing.lock);
	while (i < sharing.nimporters && !sharing_lists(importer, 1, &sharing.importers[i]))
		i++;
	found = i < sharing.nimporters;
	if (found)
		sharing.importers[i] = sharing.importers[--sharing.nimporters];
	pthread_mutex_unlock(&sharing.lock);
	return found;
}

/*
 * Find all that share memory with this process, directly or by others, and ask each once, until *@cancel
 * becomes true. Those that have got memory of this process, and have none any more, are forgotten: false, as
 * they are members for the moment. Exports are closed, as one that gets memory after it has answered must not
 * be forgotten.
 */
static bool gather(const bool *cancel)
{
	struct sharing_process list[SHARING_PROCESSES];
	struct sharing_answer answer;
	bool settled = true;

	drop_members();
	add_members(list, sharing_list_sharers(list));
	for (size_t i = 0; i < sharing.nmembers; i++) {
		struct sharing_member *m = &sharing.members[i];

		if (__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
			m->error = -EAGAIN;
			continue;
		}
		ask_member(m, SHARING_STATE, &answer);
		if (is_gone(m) || (!m->error && !answer.holds))
			settled &= !forget_importer(&m->process);
		if (m->error)
			continue;
		m->cycle = answer.cycle;
		add_members(answer.sharers, answer.nsharers);
	}
	return settled;
}

/* The ID of a member's job; NULL: it is this process's, or not known. */
static const char *other_job(const struct sharing_member *m)
{
	return m && *m->answer.job && strcmp(m->answer.job, sharers_job()) ? m->answer.job : NULL;
}

/* Those that have room. */
static void list_jobs(char jobs[SHARING_JOBS])
{
	size_t len = 0;

	*jobs = '\0';
	for (size_t i = 0; i < sharing.nmembers; i++) {
		const char *job = other_job(&sharing.members[i]);

		if (job && !strstr(jobs, job) && len + RUNDIR_ID_SIZE < SHARING_JOBS)
			len += (size_t)sprintf(jobs + len, " %s", job);
	}
}

size_t sharing_sharers(const bool *cancel, char jobs[SHARING_JOBS])
{
	struct sharing_process list[SHARING_PROCESSES];

	objects_close_exports();
	gather(cancel);
	list_jobs(jobs);
	drop_members();
	return sharing_list_sharers(list);
}

static void ask_all(enum sharing_kind kind)
{
	struct sharing_answer answer;

	for (size_t i = 0; i < sharing.nmembers; i++)
		ask_member(&sharing.members[i], kind, &answer);
}

/*
 * UNASKED: a member that lives cannot be asked; SILENT: for long. STALE: this process has imports of memory that its
 * exporter has made anew since, or has given back. LOST: it has imports of an exporter that has ended. FAILED: its
 * resume has, and it has not begun another one in time.
 */
enum verdict { GO_ON, UNASKED, NOT_YET, SILENT, STALE, LOST, WITHDREW, FAILED };

static enum verdict judge_unasked(const struct sharing_member *m)
{
	return waited_ms() - m->silent_ms > SILENT_MS ? SILENT : UNASKED;
}

/* A member that has not reached a stage, and what that means; NULL: all have. */
static struct sharing_member *find(enum verdict (*judge)(const struct sharing_member *),
				   enum verdict *verdict)
{
	struct sharing_member *found = NULL;

	*verdict = GO_ON;
	for (size_t i = 0; i < sharing.nmembers; i++) {
		struct sharing_member *m = &sharing.members[i];
		enum verdict one = m->error && !is_gone(m) ? judge_unasked(m) : judge(m);

		if (one <= *verdict)
			continue;
		*verdict = one;
		found = m;
	}
	return found;
}

static bool is_cancelled(const struct sharing_wait *w)
{
	return __atomic_load_n(w->cancel, __ATOMIC_RELAXED) || (w->pact && pact_is_ended(w->pact));
}

/* By the limit of the user. */
static bool is_late(const struct sharing_wait *w)
{
	return w->deadline_ms && limits_ms() > w->deadline_ms;
}

/* 0: the wait may go on. */
static int ended(const struct sharing_wait *w)
{
	return is_cancelled(w) ? -ECANCELED : is_late(w) ? -ETIME : 0;
}

/* A process, in words that name its job if that is another one. @m: what is known of it, or NULL. */
static const char *describe(pid_t pid, const struct sharing_member *m, char buf[WHO])
{
	const char *job = other_job(m);

	snprintf(buf, WHO, "process %d%s%s", pid, job ? " of job " : "", job ? job : "");
	return buf;
}

static int fail(struct sharing_wait *w, int error, const struct sharing_member *m, const char *why)
{
	char unasked[SHARING_WHY], who[WHO];

	if (m->error && !is_gone(m)) {
		sharers_why(&m->process, m->error, unasked, sizeof(unasked));
		why = unasked;
	}
	snprintf(w->text, sizeof(w->text), "%s, which shares memory with this one, %s",
		 describe(m->process.pid, m, who), why);
	list_jobs(w->jobs);
	return error;
}

void sharing_pause(void)
{
	set_stage(SHARING_PAUSING);
}

static enum verdict judge_resting(const struct sharing_member *m)
{
	return is_gone(m) || m->answer.stage == SHARING_RESTING || m->answer.stage == SHARING_SAVED
		       ? GO_ON
		       : NOT_YET;
}

static const char *describe_exporter(const struct object_name *name, char buf[WHO])
{
	const struct sharing_process exporter = sharing_exporter(name);

	return describe(name->pid, find_member(&exporter), buf);
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
	m = find_member(&exporter);
	if (m && m->error)
		return is_gone(m);
	error = ask_state(&exporter, SHARING_STATE, name->key, &answer);
	if (m)
		m->error = error;
	return error == -ESRCH || (!error && answer.result == SHARING_UNKNOWN);
}

/*
 * If the exporter does not have what was imported, nobody would save it: leave it to the driver. If it has,
 * it is about to make the memory anew, so that what cannot be given back would be other memory then.
 */
static int check_imports(struct sharing_wait *w)
{
	struct object_import import = {0};
	char who[WHO];

	while (objects_next_import(&import)) {
		bool gone;

		if (is_cancelled(w))
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

int sharing_rest(struct sharing_wait *w)
{
	double until_ms = waited_ms() + BEGIN_MS;
	const struct sharing_member *m;
	enum verdict verdict;
	bool late;

	objects_close_exports();
	pthread_mutex_lock(&sharing.lock);
	sharing.cycle++;
	pthread_mutex_unlock(&sharing.lock);
	set_stage(SHARING_RESTING);
	for (;;) {
		if (!gather(w->cancel))
			continue;
		if (sharing.nmembers == SHARING_PROCESSES) {
			snprintf(w->text, sizeof(w->text),
				 "%d processes share memory with this one", SHARING_PROCESSES);
			return -ENOTSUP;
		}
		m = find(judge_resting, &verdict);
		if (!m)
			break;
		late = waited_ms() > until_ms;
		if (is_cancelled(w))
			return fail(w, -ECANCELED, m, "has not come to rest");
		if (sharing_is_unreached(m->error) && late)
			return fail(w, -EHOSTUNREACH, m, "");
		if (!m->error && m->answer.stage == SHARING_RUNNING && late)
			return fail(w, -ENOTSUP, m, "does not pause with it");
		if (late && limits_ms() > w->deadline_ms)
			return fail(w, -ETIME, m, "has not come to rest");
		usleep(LOOK_MS * 1000);
	}
	return check_imports(w);
}

/* Those that are asked to resume together with this one may have failed before, and begin a moment later. */
static enum verdict judge_failed(const struct sharing_member *m)
{
	return m->failed_ms && waited_ms() - m->failed_ms > BEGIN_MS ? FAILED : GO_ON;
}

static int fail_with(struct sharing_wait *w, const struct sharing_member *m)
{
	sharing.follows = true;
	return fail(w, -ENOLINK, m, "has failed to resume");
}

/*
 * True if the member has gone back, and this process has memory of it, which nobody can use any more, and which keeps
 * that from the driver's checkpoint.
 */
static bool has_old_memory(const struct sharing_member *m)
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

/* Give imports of members back that those have made, or will make, anew. */
static int release_imports(struct sharing_wait *w, const struct sharing_member *m)
{
	w->error = objects_release_imports(m->process.instance);
	if (!w->error)
		return 0;
	snprintf(w->text, sizeof(w->text), "imported memory cannot be given back");
	return -EIO;
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

	if (clock_ms() - *asked_ms < STATE_MS)
		return 0;
	for (size_t i = 0; i < sharing.nmembers && !error; i++) {
		ask_member(&sharing.members[i], SHARING_STATE, &answer);
		error = ended(w);
		if (!error && has_old_memory(&sharing.members[i]))
			error = release_imports(w, &sharing.members[i]);
	}
	*asked_ms = clock_ms();
	m = find(judge_failed, &verdict);
	return verdict == FAILED ? fail_with(w, m) : error;
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
		struct sharing_member *m = find_member(&exporter);

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
			(struct ask){look->last, m, m && m->busy, waited_ms(),
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
		m->unreached_ms = waited_ms();
	return waited_ms() - m->unreached_ms < SHARING_LISTEN_MS;
}

/* The import was not given. 0: it may be, later. */
static int put_off(struct sharing_wait *w, struct look *look, const struct ask *ask, int error)
{
	char why[SHARING_WHY], who[WHO];

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
	char who[WHO];
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
			error = ended(w);
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
		error = ended(w);
		if (!error)
			error = check_failed(w, &asked_ms);
		if (error)
			return error;
		usleep(LOOK_MS * 1000);
	}
}

/* True if this process has imports from it; if @build is given, of another than that. */
static bool has_imports(const struct sharing_member *m, const uint64_t *build)
{
	struct object_import import = {0};

	while (objects_next_import(&import))
		if (import.name.pid == m->process.pid &&
		    !memcmp(import.name.instance, m->process.instance, OBJECT_KEY) &&
		    !import.pending && (!build || import.away || import.build != *build))
			return true;
	return false;
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
	if (is_gone(m))
		return !m->lost && has_imports(m, NULL) ? LOST : GO_ON;
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
	if (is_gone(m) || has_run(m))
		return GO_ON;
	if (judge_failed(m) == FAILED)
		return FAILED;
	if (has_old_memory(m))
		return STALE;
	if (m->answer.stage != SHARING_WHOLE ||
	    (m->answer.oldest != SHARING_NO_BUILD && m->answer.oldest != sharing.build))
		return NOT_YET;
	return has_imports(m, &m->answer.build) ? STALE : GO_ON;
}

static enum verdict judge_whole(const struct sharing_member *m)
{
	enum verdict verdict = judge_complete(m);

	if (verdict == GO_ON && !is_gone(m) && !has_run(m) && m->answer.vote == SHARING_OFF)
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
	ask_all(SHARING_STATE);
	for (size_t i = 0; i < sharing.nmembers && may; i++) {
		const struct sharing_member *m = &sharing.members[i];

		may = is_gone(m) || !(m->error ? may_have_passed(m) : passed(m));
	}
	if (!may)
		set_vote(SHARING_WAITS);
	return may;
}

/* Get what the member has made anew since it was imported. */
static int renew_imports(struct sharing_wait *w, const struct sharing_member *m)
{
	int error = release_imports(w, m);

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
		return fail(w, -ECANCELED, m, "has given up its pause");
	if (verdict == LOST)
		return fail(w, -ECANCELED, m, "has ended");
	if (verdict == FAILED)
		return fail_with(w, m);
	if (bound)
		return 0;
	if (is_cancelled(w))
		return fail(w, -ECANCELED, m, "was waited for");
	if (verdict == SILENT)
		return fail(w, -EHOSTUNREACH, m, "");
	return late || is_late(w) ? fail(w, -ETIME, m, "is not as far") : 0;
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
	double begin_ms = waited_ms();
	struct sharing_member *m;
	enum verdict verdict;
	bool on = false;

	for (;;) {
		int error;

		ask_all(on ? SHARING_LAST_STATE : SHARING_STATE);
		m = find(judge, &verdict);
		if (!m && on)
			return 0;
		on = !m;
		set_vote(on ? SHARING_ON : SHARING_WAITS);
		if (on)
			continue;
		error = give_up(w, m, verdict, is_bound(w, m),
				limit_ms && waited_ms() - begin_ms > limit_ms);
		if (error && withdraw(passed))
			return error;
		/* Some have gone on, so this one does: its own memory is safe. */
		m->lost |= verdict == LOST;
		usleep(LOOK_MS * 1000);
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

static enum verdict judge_released(const struct sharing_member *m)
{
	if (is_gone(m) || m->answer.cycle != m->cycle)
		return GO_ON;
	return m->answer.stage == SHARING_RESTING || m->answer.stage == SHARING_SAVED ? NOT_YET
										      : GO_ON;
}

/*
 * A member that has memory of this process, or may have; NULL: none. Exports are closed. Others are not asked: they
 * may be stopped.
 */
static struct sharing_member *find_holder(void)
{
	struct sharing_member *found = NULL;
	struct sharing_answer answer;

	for (size_t i = 0; i < sharing.nmembers; i++) {
		struct sharing_member *m = &sharing.members[i];

		if (!m->holds)
			continue;
		ask_member(m, SHARING_STATE, &answer);
		pthread_mutex_lock(&sharing.lock);
		m->holds = m->error ? !is_gone(m) : answer.holds == SHARING_HOLDS_MEMORY;
		pthread_mutex_unlock(&sharing.lock);
		if (m->holds && !found)
			found = m;
	}
	return found;
}

/* In a pause all come out of SAVED. */
static struct sharing_member *find_unreleased(void)
{
	enum verdict verdict;

	ask_all(SHARING_STATE);
	return find(judge_released, &verdict);
}

static int await_released(struct sharing_wait *w, double limit_ms)
{
	double until_ms = waited_ms() + limit_ms;
	bool pauses = sharing.stage != SHARING_RELEASED;
	size_t held = objects_shared_held();

	/* Else it may have said that it has failed to resume. */
	if (pauses)
		set_stage(SHARING_RELEASED);
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
		if (is_cancelled(w))
			return fail(w, -ECANCELED, m, "was waited for");
		if (waited_ms() > until_ms)
			return fail(w, -ETIME, m, "has not given its memory back");
		usleep(LOOK_MS * 1000);
	}
}

int sharing_released(struct sharing_wait *w)
{
	return await_released(w, RELEASE_MS);
}

int sharing_gone_back(struct sharing_wait *w)
{
	return await_released(w, SILENT_MS);
}

void sharing_resume(void)
{
	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].failed_ms = 0;
	sharing.follows = false;
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

	begin_stage(SHARING_WHOLE, SHARING_OFF);
	for (int looks = 0; !error; looks++) {
		ask_all(SHARING_STATE);
		m = find(judge_complete, &verdict);
		if (!m)
			return 0;
		error = give_up(w, m, verdict, false, false);
		usleep((looks < LOOKS ? LOOK_MS : STATE_MS) * 1000);
	}
	return error;
}

int sharing_remains(struct sharing_wait *w)
{
	struct sharing_member *m;
	enum verdict verdict;

	ask_all(SHARING_STATE);
	m = find(judge_complete, &verdict);
	if (verdict == NOT_YET || verdict == STALE)
		return -EAGAIN;
	return m ? give_up(w, m, verdict, false, false) : 0;
}

int sharing_whole(struct sharing_wait *w)
{
	set_stage(SHARING_WHOLE);
	return agree(w, 0, judge_whole, passed_whole);
}

void sharing_back(void)
{
	objects_close_exports();
	set_stage(SHARING_RELEASED);
}

/* One that follows another one says nothing: it is waited for as before, once the other one resumes. */
void sharing_failed(void)
{
	pthread_mutex_lock(&sharing.lock);
	if (sharing.stage == SHARING_RELEASED && !sharing.follows)
		sharing.vote = SHARING_OFF;
	pthread_mutex_unlock(&sharing.lock);
}

void sharing_run(void)
{
	drop_members();
	set_stage(SHARING_RUNNING);
	objects_open_exports();
}
