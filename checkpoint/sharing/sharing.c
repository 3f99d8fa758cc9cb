/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/sharing.h"
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"
#include "common/protocol/beacon.h"
#include "common/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LOG_PREFIX "sharing: "
#include "common/log.h"

#define AGAIN_MS 10 /* between two tries to reach an exporter */

static void list_add(struct sharing_process *list, uint32_t *n, const struct sharing_process *one)
{
	if (!sharing_lists(list, *n, one) && *n < SHARING_PROCESSES)
		list[(*n)++] = *one;
}

struct sharing_process sharing_exporter(const struct object_name *name)
{
	struct sharing_process p = {.pid = name->pid};

	memcpy(p.instance, name->instance, sizeof(p.instance));
	return p;
}

uint32_t sharing_list_sharers(struct sharing_process list[SHARING_PROCESSES])
{
	struct object_import import = {0};
	uint32_t n;

	pthread_mutex_lock(&sharing.lock);
	n = sharing.nimporters;
	memcpy(list, sharing.importers, n * sizeof(list[0]));
	pthread_mutex_unlock(&sharing.lock);
	while (objects_next_import(&import)) {
		const struct sharing_process exporter = sharing_exporter(&import.name);

		if (!sharers_is_self(&exporter) && !import.pending)
			list_add(list, &n, &exporter);
	}
	return n;
}

/* True if a descriptor of memory of that process may be on its way to this one. */
static bool asks(const unsigned char instance[OBJECT_KEY])
{
	bool found = false;

	pthread_mutex_lock(&sharing.lock);
	for (size_t i = 0; i < sharing.nmembers && !found; i++)
		found = sharing.members[i].asks &&
			!memcmp(sharing.members[i].process.instance, instance, OBJECT_KEY);
	pthread_mutex_unlock(&sharing.lock);
	return found;
}

/*
 * What this process has imported from the one that asks, in the stage of @answer. One that is at rest takes nothing
 * that it waits for, and has gone on to be paused, perhaps, without this exporter.
 */
static void describe_imports(const unsigned char instance[OBJECT_KEY],
			     struct sharing_answer *answer)
{
	struct object_import import = {0};

	/* First: what has come since is among the imports. */
	if (asks(instance))
		answer->holds = SHARING_HOLDS_MEMORY;
	while (objects_next_import(&import)) {
		uint64_t build = import.away ? 0 : import.build;

		if (memcmp(import.name.instance, instance, OBJECT_KEY) != 0)
			continue;
		if (!import.away)
			answer->holds = SHARING_HOLDS_MEMORY;
		else if (!answer->holds && (!import.pending || answer->stage < SHARING_RESTING))
			answer->holds = SHARING_HOLDS;
		if (!import.pending && build < answer->oldest)
			answer->oldest = build;
	}
}

/*
 * Whether @from may have memory now. Before it gets any it is noted: a pause that begins then finds
 * it, or has closed the exports.
 */
static enum sharing_result may_export(const struct sharing_process *from)
{
	enum sharing_result result = SHARING_LATER;
	bool may;

	pthread_mutex_lock(&sharing.lock);
	may = sharing.stage <= SHARING_PAUSING;
	for (size_t i = 0; i < sharing.nmembers && !may; i++) {
		struct sharing_member *m = &sharing.members[i];

		may = sharing.stage >= SHARING_REBUILT && sharing_lists(&m->process, 1, from);
		if (may)
			m->holds = true;
	}
	if (may)
		result = sharing_note_importer(from);
	pthread_mutex_unlock(&sharing.lock);
	return result;
}

static enum sharing_result export_to(const struct sharing_process *to,
				     const unsigned char key[OBJECT_KEY], int *fd, uint64_t *size)
{
	enum sharing_result may = may_export(to);
	size_t bytes;
	CUresult result;

	if (may != SHARING_OK)
		return may;
	result = objects_export(key, fd, &bytes);
	if (result == CUDA_SUCCESS)
		*size = bytes;
	else if (result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_INVALID_VALUE)
		pr_warn("process %d gets no memory: driver error %d", to->pid, result);
	return result == CUDA_SUCCESS               ? SHARING_OK
	       : result == CUDA_ERROR_NOT_READY     ? SHARING_LATER
	       : result == CUDA_ERROR_INVALID_VALUE ? SHARING_UNKNOWN
						    : SHARING_FAILED;
}

/* Of memory of this process. */
static struct object_name name_of(const unsigned char key[OBJECT_KEY])
{
	struct object_name name = {.pid = sharers_self()->pid};

	memcpy(name.instance, sharers_self()->instance, sizeof(name.instance));
	memcpy(name.key, key, sizeof(name.key));
	return name;
}

/* A ticket that keeps the object of this process with that key. */
static int own_ticket(const struct object_name *name)
{
	struct beacon beacon;
	int fd = ticket_make(name, &beacon);

	if (fd < 0) {
		pr_err_once("no ticket for memory to be shared: %s", error_text(-fd));
	} else if (!objects_add_ticket(name->key, &beacon)) {
		close(fd);
		fd = -ENODATA;
	}
	return fd;
}

/* With the lock held: @from goes on, if the others are as far as this process. */
static void note_last(const struct sharing_process *from)
{
	for (size_t i = 0; i < sharing.nmembers; i++)
		sharing.members[i].heard |= sharing.vote != SHARING_OFF &&
					    sharing_lists(&sharing.members[i].process, 1, from);
}

static void answer_request(const struct sharing_request *request,
			   const struct sharing_process *from, struct sharing_answer *answer,
			   int *fd)
{
	static const unsigned char none[OBJECT_KEY];

	/* First: memory that is exported below is not older than this build. */
	pthread_mutex_lock(&sharing.lock);
	answer->stage = sharing.stage;
	answer->vote = sharing.vote;
	answer->cycle = sharing.cycle;
	answer->build = sharing.build;
	if (request->kind == SHARING_LAST_STATE)
		note_last(from);
	pthread_mutex_unlock(&sharing.lock);
	if (request->kind == SHARING_EXPORT)
		answer->result = export_to(from, request->key, fd, &answer->size);
	else if (memcmp(request->key, none, sizeof(none)) && !objects_have_key(request->key))
		answer->result = SHARING_UNKNOWN;
	describe_imports(from->instance, answer);
	answer->nsharers = sharing_list_sharers(answer->sharers);
}

bool sharing_name(struct object_name *name)
{
	unsigned char key[OBJECT_KEY];

	if (sharers_start(answer_request, objects_put_kept) ||
	    getrandom(key, sizeof(key), 0) != sizeof(key))
		return false;
	*name = name_of(key);
	return true;
}

bool sharing_is_own(const struct object_name *name)
{
	const struct sharing_process exporter = sharing_exporter(name);

	return sharers_is_self(&exporter);
}

CUresult sharing_export(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
			unsigned long long flags, int *fd)
{
	struct object_name name;
	CUresult result;

	*fd = -1;
	if (!sharing_name(&name))
		return CUDA_SUCCESS;
	result = objects_share(handle, type, flags, &name, &name);
	if (result == CUDA_SUCCESS && sharing_is_own(&name))
		*fd = own_ticket(&name);
	return result;
}

bool sharing_is_unreached(int error)
{
	return error && error != -ESRCH && error != -ENODATA && error != -EIO && error != -EBUSY &&
	       error != -EAGAIN;
}

int sharing_fetch_begin(const struct object_name *name)
{
	const struct sharing_process exporter = sharing_exporter(name);
	struct sharing_request request;

	if (sharers_is_self(&exporter))
		return -ENOTCONN;
	sharing_request_begin(&request, SHARING_EXPORT);
	memcpy(request.key, name->key, sizeof(request.key));
	return sharers_begin(&exporter, &request);
}

static int fetch_own(const struct object_name *name, int *fd, struct sharing_answer *answer)
{
	CUresult result;
	size_t size = 0;

	sharing_answer_begin(answer);
	pthread_mutex_lock(&sharing.lock);
	answer->build = sharing.build;
	pthread_mutex_unlock(&sharing.lock);
	result = objects_export(name->key, fd, &size);
	answer->size = size;
	return !result ? 0 : result == CUDA_ERROR_INVALID_VALUE ? -ENODATA : -EIO;
}

int sharing_fetch_end(struct patience *patience, double asked_ms, const struct object_name *name,
		      int with, int *fd, struct sharing_answer *answer)
{
	const struct sharing_process exporter = sharing_exporter(name);
	int error;

	*fd = -1;
	if (sharers_is_self(&exporter))
		return fetch_own(name, fd, answer);
	error = sharers_end(patience, asked_ms, with, answer, fd);
	if (error)
		return error;
	switch ((enum sharing_result)answer->result) {
	case SHARING_OK:
		return *fd < 0 ? -EBADMSG : 0;
	case SHARING_LATER:
		return -EBUSY;
	case SHARING_UNKNOWN:
		return -ENODATA;
	default:
		return -EIO;
	}
}

CUresult sharing_import_begin(const struct object_name *name, CUmemGenericAllocationHandle *handle)
{
	return sharers_start(answer_request, objects_put_kept) ? CUDA_ERROR_OPERATING_SYSTEM
							       : objects_import_begin(name, handle);
}

static int fetch_patiently(const struct object_name *name, int *fd, struct sharing_answer *answer)
{
	struct patience patience = {0};
	int error;

	while ((error = sharing_fetch_end(&patience, patience_ms(&patience), name,
					  sharing_fetch_begin(name), fd, answer)) &&
	       sharing_is_unreached(error) && patience_ms(&patience) < SHARING_LISTEN_MS)
		usleep(AGAIN_MS * 1000);
	return error;
}

void sharing_why(const struct object_name *name, int error, char *text, size_t size)
{
	const struct sharing_process exporter = sharing_exporter(name);

	if (error == -ESRCH)
		snprintf(text, size, "has ended");
	else if (error == -EBUSY)
		snprintf(text, size, "has not resumed");
	else if (error == -ENODATA)
		snprintf(text, size, "has freed it");
	else if (error == -EIO)
		snprintf(text, size, "cannot export it");
	else
		sharers_why(&exporter, error, text, size);
}

CUresult sharing_import(const struct object_name *name, CUmemGenericAllocationHandle handle,
			bool *silent)
{
	struct sharing_answer answer;
	int fd = -1, error = fetch_patiently(name, &fd, &answer);
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	char why[SHARING_WHY];

	*silent = error == -EAGAIN;
	if (error == -EBUSY || error == -EAGAIN)
		return CUDA_ERROR_NOT_READY;
	if (error) {
		sharing_why(name, error, why, sizeof(why));
		pr_err("memory of process %d cannot be imported: that process %s%s", name->pid, why,
		       error == -ESRCH ? ", or is in another PID namespace" : "");
	} else {
		result = objects_import(handle, fd, answer.size, answer.build);
	}
	if (fd >= 0)
		close(fd);
	if (result != CUDA_SUCCESS)
		objects_import_drop(handle);
	return result;
}
