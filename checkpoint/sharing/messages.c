/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/messages.h"
#include "common/protocol/beacon.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define TICKET_MAGIC  0x544b547761647563UL /* "cudawTKT" */
#define REQUEST_MAGIC 0x4b53417761647563UL /* "cudawASK" */
#define ANSWER_MAGIC  0x534e417761647563UL /* "cudawANS" */
#define IPC_MAGIC     0x4350497761647563UL /* "cudawIPC" */
#define VERSION       1
#define RUN_MAX       (1UL << 40) /* as vmem reserves addresses */

struct ticket {
	uint64_t magic;
	uint32_t version;
	int32_t pid;
	unsigned char instance[OBJECT_KEY];
	unsigned char key[OBJECT_KEY];
	unsigned char zero[16];
};

_Static_assert(sizeof(struct ticket) == 64, "the format of tickets");
_Static_assert(sizeof(struct sharing_handle) == sizeof(CUipcMemHandle), "the format of handles");
_Static_assert(sizeof(struct sharing_request) == 64, "the format of requests");
_Static_assert(sizeof(struct sharing_process) == 20, "the format of answers");
_Static_assert(sizeof((struct sharing_answer){0}.job) >= RUNDIR_ID_SIZE, "the format of answers");
_Static_assert(offsetof(struct sharing_answer, sharers) == 72, "the format of answers");

int ticket_make(const struct object_name *name, struct beacon *beacon)
{
	struct ticket t = {.magic = TICKET_MAGIC, .version = VERSION, .pid = name->pid};

	memcpy(t.instance, name->instance, sizeof(t.instance));
	memcpy(t.key, name->key, sizeof(t.key));
	return beacon_make(&t, sizeof(t), beacon);
}

int ticket_parse(const void *data, size_t size, struct object_name *name)
{
	static const unsigned char zero[sizeof((struct ticket){0}.zero)];
	struct ticket t;

	if (size != sizeof(t))
		return -ENOENT;
	memcpy(&t, data, sizeof(t));
	if (t.magic != TICKET_MAGIC)
		return -ENOENT;
	if (t.version != VERSION)
		return -ENOTSUP;
	if (t.pid <= 0 || memcmp(t.zero, zero, sizeof(zero)))
		return -EBADMSG;
	name->pid = t.pid;
	memcpy(name->instance, t.instance, sizeof(t.instance));
	memcpy(name->key, t.key, sizeof(t.key));
	return 0;
}

int ticket_read(int fd, struct object_name *name)
{
	unsigned char data[sizeof(struct ticket)];
	ssize_t size = beacon_read(fd, data, sizeof(data));

	return size < 0 ? (int)size : ticket_parse(data, (size_t)size, name);
}

struct sharing_handle sharing_handle_make(const struct object_name *name)
{
	struct sharing_handle handle = {.magic = IPC_MAGIC, .version = VERSION, .pid = name->pid};

	memcpy(handle.instance, name->instance, sizeof(handle.instance));
	memcpy(handle.key, name->key, sizeof(handle.key));
	return handle;
}

int sharing_handle_parse(const void *data, struct sharing_handle *handle)
{
	struct sharing_handle h;

	memcpy(&h, data, sizeof(h));
	if (h.magic != IPC_MAGIC)
		return -ENOENT;
	if (h.version != VERSION)
		return -ENOTSUP;
	if (h.pid <= 0 || !h.size || h.size > RUN_MAX || h.size % VMEM_GRANULE ||
	    h.offset >= h.size)
		return -EBADMSG;
	*handle = h;
	return 0;
}

void sharing_request_begin(struct sharing_request *request, enum sharing_kind kind)
{
	*request =
		(struct sharing_request){.magic = REQUEST_MAGIC, .version = VERSION, .kind = kind};
}

void sharing_answer_begin(struct sharing_answer *answer)
{
	memset(answer, 0, offsetof(struct sharing_answer, sharers));
	answer->magic = ANSWER_MAGIC;
	answer->version = VERSION;
	answer->oldest = SHARING_NO_BUILD;
}

size_t sharing_answer_size(const struct sharing_answer *answer)
{
	return offsetof(struct sharing_answer, sharers) +
	       answer->nsharers * sizeof(answer->sharers[0]);
}

int sharing_request_parse(const void *data, size_t size, struct sharing_request *request)
{
	struct sharing_request r;

	if (size != sizeof(r))
		return -EBADMSG;
	memcpy(&r, data, sizeof(r));
	if (r.magic != REQUEST_MAGIC)
		return -EBADMSG;
	if (r.version != VERSION)
		return -ENOTSUP;
	if (r.kind < SHARING_EXPORT || r.kind > SHARING_LAST_STATE)
		return -EBADMSG;
	*request = r;
	return 0;
}

int sharing_answer_parse(const void *data, size_t size, struct sharing_answer *answer)
{
	const size_t head = offsetof(struct sharing_answer, sharers);
	struct sharing_answer a;

	if (size < head)
		return -EBADMSG;
	memcpy(&a, data, head);
	if (a.magic != ANSWER_MAGIC)
		return -EBADMSG;
	if (a.version != VERSION)
		return -ENOTSUP;
	if (a.result >= SHARING_RESULTS || a.stage >= SHARING_STAGES || a.vote >= SHARING_VOTES ||
	    a.nsharers > SHARING_PROCESSES || !rundir_is_id(a.job) ||
	    size != sharing_answer_size(&a))
		return -EBADMSG;
	memcpy(a.sharers, (const unsigned char *)data + head, size - head);
	for (uint32_t i = 0; i < a.nsharers; i++)
		if (a.sharers[i].pid <= 0)
			return -EBADMSG;
	memcpy(answer, &a, size);
	return 0;
}
