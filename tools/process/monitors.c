/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/monitors.h"

#include "common/patience.h"
#include "common/processes/maps.h"
#include "tools/process/criu/descriptors.h"

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

static bool is_among(pid_t pid, const pid_t *pids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

static bool is_monitor(pid_t pid)
{
	struct descriptors files = {0};
	struct driver_answer answer;
	struct process process;
	char path[PATH_MAX];
	bool opens;

	descriptors_add_process(&files, pid);
	opens = descriptors_of(&files, DESCRIPTOR_GPU, pid);
	free(files.all);
	/* A stopped process does not answer. */
	if (!opens || !process_find(pid, &process) || strchr("Tt", process.state))
		return false;
	if (maps_find(pid, DESCRIPTOR_GPU_PATH, path))
		return false;
	driver_child_ask(DRIVER_ASK, pid, ASK_MS, &answer);
	return answer.state == DRIVER_RUNNING;
}

void monitors_find(struct monitors *m, const struct tree *tree, const pid_t *others, size_t nothers)
{
	m->n = 0;
	for (size_t i = 0; i < tree->n && m->n < MONITORS_MAX; i++)
		if (!is_among(tree->pids[i], others, nothers) && is_monitor(tree->pids[i]))
			m->pids[m->n++] = tree->pids[i];
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

/* Whether the child has checkpointed them, within the time. */
static bool await_kept(struct monitors *m)
{
	struct patience patience = {0};

	while (!__atomic_load_n(&m->work.answer->kept, __ATOMIC_ACQUIRE))
		if (driver_child_await(&m->work, LOOK_MS) || patience_ms(&patience) > WORK_MS)
			return m->work.answer->kept;
	return true;
}

bool monitors_keep(struct monitors *m, bool already, char *why, size_t size)
{
	int ends[2];

	if (!m->n || m->kept)
		return true;
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
	m->kept = driver_child_begin(&m->work) && await_kept(m);
	close(ends[0]);
	if (m->kept)
		return true;
	explain(m->work.answer, why, size);
	close(m->until);
	driver_child_end(&m->work);
	return false;
}

bool monitors_let_go(struct monitors *m, bool wait, char *why, size_t size)
{
	bool ended, done;

	if (!m->kept)
		return true;
	m->kept = false;
	close(m->until);
	ended = wait && driver_child_await(&m->work, WORK_MS);
	done = !wait || (ended && !*m->work.answer->call && !*m->work.answer->failure);
	if (!done)
		explain(m->work.answer, why, size);
	driver_child_end(&m->work);
	return done;
}
