/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHARING_MESSAGES_H
#define CUDAW_SHARING_MESSAGES_H
/*
 * What processes that share GPU memory give each other: tickets, in place of the driver's exported
 * descriptors, legacy IPC handles, and the messages of their sockets (sharers.h). All of it comes from
 * other processes, so it is checked here: sizes, magic numbers, versions and counts. Nothing in it is
 * a path, and a ticket only names memory: size and contents are what the exporter says when it is
 * asked. The size in a handle says how many pieces to ask for.
 *
 * A ticket is a beacon (common/protocol/beacon.h), which passes between processes like the driver's descriptor: by
 * SCM_RIGHTS, fork() or pidfd_getfd(). As that does, it keeps the memory until all have closed it. Its data
 * are the following; numbers are little-endian.
 *
 *	ticket	0	magic, 8 bytes
 *		8	version, 4
 *		12	pid of the exporter, 4
 *		16	its instance, 16
 *		32	key of the object, 16
 *		48	zero, 16
 *
 * A legacy IPC handle (cuIpcGetMemHandle()) begins in the same way, and a program passes its 64 bytes
 * as it likes.
 *
 *	handle	0	magic, 8 bytes
 *		8	version, 4
 *		12	pid of the exporter, 4
 *		16	its instance, 16
 *		32	key of the first piece of the run, 16 (vmem/legacy.h)
 *		48	size of the run, 8
 *		56	offset of the allocation in it, 8
 */
#include "common/protocol/rundir.h"
#include "vmem/objects/objects.h"

#include <stdint.h>

#define SHARING_PROCESSES 256 /* that share memory with one process, directly or by others */

/*
 * One process image of those that have had its pid. Of an instance 4 bytes are the ID of the thread that
 * answers (sharers.h), and 12 are random.
 */
struct sharing_process {
	int32_t pid;
	unsigned char instance[OBJECT_KEY];
};

/*
 * Make a ticket. Returns its descriptor, close-on-exec, or a negative errno.
 */
int ticket_make(const struct object_name *name, struct beacon *beacon);

/*
 * Read the ticket @fd into *@name. -ENOENT: it is no ticket. -ENOTSUP: of another version. -EBADMSG:
 * not as ticket_make() makes it.
 */
int ticket_read(int fd, struct object_name *name);
int ticket_parse(const void *data, size_t size, struct object_name *name);

struct sharing_handle {
	uint64_t magic;
	uint32_t version;
	int32_t pid;
	unsigned char instance[OBJECT_KEY], key[OBJECT_KEY];
	uint64_t size, offset;
};

/* A handle of the memory @name, whose size and offset are 0. */
struct sharing_handle sharing_handle_make(const struct object_name *name);

/* Read 64 bytes. -ENOENT: the handle is the driver's. -ENOTSUP, -EBADMSG: as ticket_read(). */
int sharing_handle_parse(const void *data, struct sharing_handle *handle);

enum sharing_kind {
	SHARING_EXPORT = 1, /* give a descriptor of the object with the key */
	SHARING_STATE,      /* only the rest of the answer; a key that is not zero: is it known? */
	SHARING_LAST_STATE, /* the same, of a process that goes on if all that it asks are as far */
};

struct sharing_request {
	uint64_t magic;
	uint32_t version;
	uint32_t kind;
	unsigned char to[OBJECT_KEY], from[OBJECT_KEY]; /* instances */
	unsigned char key[OBJECT_KEY];
};

enum sharing_result {
	SHARING_OK,
	SHARING_LATER,    /* a pause has the memory */
	SHARING_UNKNOWN,  /* there is no object with that key any more */
	SHARING_STRANGER, /* this is not the process that the request is for */
	SHARING_FAILED,   /* the driver exports nothing */
	SHARING_RESULTS
};

/* Stages of a pause and a resume, as sharing.h describes them. */
enum sharing_stage {
	SHARING_RUNNING,
	SHARING_PAUSING,
	SHARING_RESTING,
	SHARING_SAVED,
	SHARING_RELEASED,
	SHARING_REBUILT,
	SHARING_WHOLE,
	SHARING_STAGES
};

/*
 * Whether the process goes on from SAVED or WHOLE. Of one that is RELEASED, OFF says that its resume has failed,
 * and that no other one has begun.
 */
enum sharing_vote { SHARING_WAITS, SHARING_ON, SHARING_OFF, SHARING_VOTES };

/*
 * Whether the process has imports from the one that asks, or is not at rest, and about to have some. _MEMORY: it has
 * that memory now, as a pause has not given all of it back; or a descriptor of it may be on its way.
 */
enum sharing_holds { SHARING_HOLDS_NONE, SHARING_HOLDS, SHARING_HOLDS_MEMORY };

/* Sent up to the last of @nsharers. Without imports @oldest is SHARING_NO_BUILD. */
#define SHARING_NO_BUILD UINT64_MAX
struct sharing_answer {
	uint64_t magic;
	uint32_t version;
	uint32_t result;
	uint32_t stage, vote;
	uint64_t cycle;  /* which pause */
	uint64_t build;  /* which memory is under the exported objects: each resume makes it anew */
	uint64_t size;   /* of the exported object */
	uint64_t oldest; /* build of its imports from the process that asks; 0: one is not there */
	uint32_t holds;  /* enum sharing_holds */
	uint32_t nsharers;
	char job[8]; /* the ID of its job, a string */
	struct sharing_process
		sharers[SHARING_PROCESSES]; /* with which it shares memory directly */
};

/* Fill in what is the same in all messages. */
void sharing_request_begin(struct sharing_request *request, enum sharing_kind kind);
void sharing_answer_begin(struct sharing_answer *answer);

/* The bytes to send. */
size_t sharing_answer_size(const struct sharing_answer *answer);

/* Take a message of @size bytes. 0, -EBADMSG, or -ENOTSUP for another version. */
int sharing_request_parse(const void *data, size_t size, struct sharing_request *request);
int sharing_answer_parse(const void *data, size_t size, struct sharing_answer *answer);

#endif
