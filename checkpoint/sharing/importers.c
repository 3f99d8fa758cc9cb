/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"
#include "common/system/forks.h"
#include "common/system/threads.h"

#include <errno.h>
#include <unistd.h>

#define LOG_PREFIX "sharing: "
#include "common/log.h"

/*
 * A thread that asks all importers whether they hold memory still. The thread that answers others must not wait for
 * answers itself: two such processes would wait for each other.
 */
static struct {
	bool runs;
	bool done; /* it has ended, and nobody was noted since: all hold memory */
	struct sharing_process asked;
	bool took; /* the one that is asked has got memory since */
} sweep;           /* under sharing.lock */

bool sharing_forget_importer(const struct sharing_process *importer)
{
	uint32_t i = 0;

	while (i < sharing.nimporters && !sharing_lists(importer, 1, &sharing.importers[i]))
		i++;
	if (i == sharing.nimporters)
		return false;
	sharing.importers[i] = sharing.importers[--sharing.nimporters];
	return true;
}

/* With the lock held. */
static void forget_ended(void)
{
	for (uint32_t i = 0; i < sharing.nimporters; i++)
		if (sharers_is_gone(&sharing.importers[i]))
			sharing.importers[i--] = sharing.importers[--sharing.nimporters];
}

static bool holds_nothing(const struct sharing_process *importer)
{
	struct sharing_request request;
	struct sharing_answer answer;
	struct patience patience = {0};
	int fd, error;

	sharing_request_begin(&request, SHARING_STATE);
	error = sharers_ask(&patience, importer, &request, &answer, &fd);
	if (fd >= 0)
		close(fd);
	return error == -ESRCH || (!error && answer.holds == SHARING_HOLDS_NONE);
}

/* The importer with the number @i is asked next. False: there is none. */
static bool begin_to_ask(uint32_t i)
{
	bool found;

	pthread_mutex_lock(&sharing.lock);
	found = i < sharing.nimporters;
	if (found)
		sweep.asked = sharing.importers[i];
	sweep.took = false;
	sweep.runs = found;
	sweep.done = !found;
	pthread_mutex_unlock(&sharing.lock);
	return found;
}

static void *ask_importers(void *unused)
{
	uint32_t i = 0;

	threads_own_floats();
	while (begin_to_ask(i)) {
		bool nothing = holds_nothing(&sweep.asked);

		pthread_mutex_lock(&sharing.lock);
		if (!nothing || sweep.took || !sharing_forget_importer(&sweep.asked))
			i++;
		pthread_mutex_unlock(&sharing.lock);
	}
	return unused;
}

enum sharing_result sharing_note_importer(const struct sharing_process *importer)
{
	sweep.took |= sharing_lists(&sweep.asked, 1, importer);
	if (sharing_lists(sharing.importers, sharing.nimporters, importer))
		return SHARING_OK;
	if (sharing.nimporters == SHARING_PROCESSES)
		forget_ended();
	if (sharing.nimporters < SHARING_PROCESSES) {
		sharing.importers[sharing.nimporters++] = *importer;
		sweep.done = false;
		return SHARING_OK;
	}
	if (!sweep.done && !sweep.runs)
		sweep.runs = !threads_start("cudaw-sharers", ask_importers);
	if (sweep.runs)
		return SHARING_LATER;
	pr_warn("process %d gets no memory: %d others have some", importer->pid, SHARING_PROCESSES);
	sweep.done = false; /* the next one asks them again */
	return SHARING_FAILED;
}

static void forget_in_child(void)
{
	sweep.runs = false;
}
FORKS_CHILD(forget_in_child);
