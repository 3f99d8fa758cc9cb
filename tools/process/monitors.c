/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/monitors.h"

#include "common/patience.h"
#include "common/processes/maps.h"
#include "common/protocol/rundir.h"
#include "tools/process/criu/criu.h"
#include "tools/process/criu/descriptors.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK_MS  10000 /* for the driver's answer; more than cuInit takes */
#define LOCK_MS 10000 /* for a call of NVML to end */
#define WORK_MS 60000 /* for all of them */
#define LOOK_MS 10

/* Whether the process may be known to the driver: by NVML, or, of @all, in whatever way. */
static bool may_be_known(pid_t pid, bool all)
{
	char path[PATH_MAX];

	return maps_find(pid, "libnvidia-ml.so", path) ||
	       (all && maps_find(pid, "libcuda.so", path));
}

/* What the driver may have of @tree, except of @others. False with @why if that cannot be known. */
static bool ask(struct driver_answer *answer, const struct tree *tree, const pid_t *others,
		size_t nothers, bool all, char *why, size_t size)
{
	pid_t pids[TREE_MAX];
	size_t n = 0;

	for (size_t i = 0; i < tree->n; i++)
		if (!process_is_among(tree->pids[i], others, nothers) &&
		    may_be_known(tree->pids[i], all))
			pids[n++] = tree->pids[i];
	answer->nlisted = 0;
	if (!n)
		return true;
	driver_child_find(pids, n, ASK_MS, answer);
	/* A driver that has no checkpoint has none checkpointed. */
	if (!*answer->failure || answer->unsupported)
		return true;
	snprintf(why, size, "its processes that may use NVML cannot be looked at: %s",
		 answer->failure);
	return false;
}

/* Whether a snapshot can have it, or it is none of ours. */
static bool is_at_hand(const struct driver_listed *found, char *why, size_t size)
{
	pid_t pid = found->process.pid;

	if (found->state == DRIVER_RUNNING)
		return true;
	if (found->state == DRIVER_UNKNOWN)
		snprintf(
			why, size,
			"its process %d is stopped and has loaded NVML, so that the driver cannot be "
			"asked about it: continue it",
			pid);
	else
		snprintf(
			why, size,
			"the driver has locked or checkpointed its process %d: 'cudaw resume %d' first",
			pid, pid);
	return false;
}

static bool is_monitor(const struct driver_listed *found)
{
	struct descriptors files = {0};
	char path[PATH_MAX];
	bool opens;

	descriptors_add_process(&files, found->process.pid);
	opens = descriptors_of(&files, DESCRIPTOR_GPU, found->process.pid);
	free(files.all);
	return opens && !maps_find(found->process.pid, DESCRIPTOR_GPU_PATH, path);
}

bool monitors_find(struct monitors *m, const struct tree *tree, const pid_t *others, size_t nothers,
		   char *why, size_t size)
{
	struct driver_answer answer;

	m->n = 0;
	if (!ask(&answer, tree, others, nothers, true, why, size))
		return false;
	for (int i = 0; i < answer.nlisted; i++) {
		const struct driver_listed *found = &answer.listed[i];

		if (!is_at_hand(found, why, size))
			return false;
		if (m->n < MONITORS_MAX && is_monitor(found))
			m->pids[m->n++] = found->process.pid;
	}
	return true;
}

void monitors_drop(struct monitors *m, const struct tree *tree)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++) {
		struct rundir_process p;

		if (tree_has(tree, m->pids[i]) && rundir_process(m->pids[i], &p) && !p.exits)
			m->pids[n++] = m->pids[i];
	}
	m->n = n;
}

/* Why the driver's child failed. */
static void explain(const struct driver_answer *answer, char *why, size_t size)
{
	char process[32] = "its processes that use NVML";

	if (answer->kept_not)
		snprintf(process, sizeof(process), "its process %d", answer->kept_not);
	if (*answer->call)
		snprintf(why, size, "%s, which has a GPU open by NVML: %s fails with %s (%d)",
			 process, answer->call, answer->error_name, answer->error);
	else
		snprintf(why, size, "%s: %s", process,
			 *answer->failure ? answer->failure : "the driver does not answer");
}

/* Whether the child has checkpointed them, within the time, or until an interrupt unless they are so @already. */
static bool await_kept(struct monitors *m, bool already)
{
	struct patience patience = {0};

	while (!__atomic_load_n(&m->work.answer->kept, __ATOMIC_ACQUIRE))
		if (driver_child_await(&m->work, LOOK_MS) || patience_ms(&patience) > WORK_MS ||
		    (!already && criu_is_interrupted()))
			return m->work.answer->kept;
	return true;
}

/* Whether the child is done, within the time, with all that nobody has stopped. */
static bool await_gone(struct monitors *m)
{
	struct patience patience = {0};

	while (!driver_child_await(&m->work, LOOK_MS))
		if (__atomic_load_n(&m->work.answer->halted, __ATOMIC_ACQUIRE))
			return true;
		else if (patience_ms(&patience) > WORK_MS)
			return false;
	return true;
}

/* *@crashed: the child has not done its work. */
static bool end(struct monitors *m, bool wait, bool *crashed, char *why, size_t size)
{
	bool ended, done;

	close(m->until);
	m->kept = false;
	ended = wait && await_gone(m);
	*crashed = ended && *m->work.answer->failure;
	done = !wait || (ended && !*m->work.answer->call && !*m->work.answer->failure);
	if (!done)
		explain(m->work.answer, why, size);
	driver_child_end(&m->work);
	return done;
}

static bool begin(struct monitors *m, bool already, bool *crashed, char *why, size_t size)
{
	int ends[2];

	*crashed = false;
	if (pipe2(ends, O_CLOEXEC)) {
		snprintf(why, size, "%s", strerror(errno));
		return false;
	}
	m->work = (struct driver_work){
		.op = DRIVER_KEEP,
		.look = m->pids,
		.nlook = m->n,
		.timeout_ms = LOCK_MS,
		.keeps = {.already = already, .until = ends[0], m->pairs, m->npairs}};
	m->until = ends[1];
	m->kept = driver_child_begin(&m->work) && await_kept(m, already);
	close(ends[0]);
	if (m->kept)
		return true;
	/* What of them it has checkpointed comes back; after an interrupt it locks no more of them. */
	if (end(m, true, crashed, why, size))
		snprintf(why, size,
			 !already && criu_is_interrupted() ? "interrupted"
							   : "the driver does not answer");
	return false;
}

/* By a second child, after one that has crashed or was killed. */
static bool bring_back(const struct monitors *m, char *why, size_t size)
{
	struct monitors again = *m;
	bool crashed;

	return begin(&again, true, &crashed, why, size) && end(&again, true, &crashed, why, size);
}

bool monitors_keep(struct monitors *m, bool already, char *why, size_t size)
{
	char worse[256];
	bool crashed;

	if (!m->n || m->kept || begin(m, already, &crashed, why, size))
		return true;
	if (crashed && !already && !bring_back(m, worse, sizeof(worse)))
		snprintf(why, size, "%s; NVML stays blocked there", worse);
	return false;
}

bool monitors_let_go(struct monitors *m, bool wait, char *why, size_t size)
{
	bool crashed;

	return !m->kept || end(m, wait, &crashed, why, size) ||
	       (crashed && bring_back(m, why, size));
}

/*
 * Whether no other command works on it or has paused it: then it may have memory for which there is no room now. None
 * does until @claim is released. If one has, or *@known becomes false as nobody can tell, that is said.
 */
static bool is_nobodys(const struct process *process, struct record_claim *claim, bool *known)
{
	char why[256];
	int err = record_claim(claim, process, why, sizeof(why));

	if (err)
		complain("process %d is left alone: %s", process->pid, why);
	*known &= !err || err == -EAGAIN || err == -EBUSY;
	return !err;
}

bool monitors_revive(const struct tree *tree, const pid_t *others, size_t nothers, char *why,
		     size_t size)
{
	struct record_claim claims[MONITORS_MAX];
	struct driver_answer answer;
	struct monitors m = {.n = 0};
	bool known = true, revived;

	if (!ask(&answer, tree, others, nothers, false, why, size))
		return false;
	for (int i = 0; i < answer.nlisted && m.n < MONITORS_MAX; i++)
		if (answer.listed[i].state > DRIVER_RUNNING &&
		    is_nobodys(&answer.listed[i].process, &claims[m.n], &known))
			m.pids[m.n++] = answer.listed[i].process.pid;
	if (!known)
		snprintf(why, size, "the driver has locked or checkpointed a process of it");
	revived = !m.n || bring_back(&m, why, size);
	while (m.n > 0)
		record_release(&claims[--m.n]);
	return revived && known;
}
