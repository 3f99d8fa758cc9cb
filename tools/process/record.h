/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RECORD_H
#define CUDAW_RECORD_H
/*
 * What 'cudaw pause --driver PID' leaves for the resume: the file PID.driver in the runtime
 * directory of the command's user, with the start time of the process, and the bytes that it held
 * on each GPU, if they are known. Nobody can ask for them while the driver holds the process.
 *
 * The file is locked (flock(2)) as long as a command works on the process. It is removed by a
 * holder of the lock, who is the only one, so a lock on a file without a name is no lock: open it
 * again.
 */
#include "common/gpu/gpu.h"
#include "tools/process/process.h"

#include <stdbool.h>
#include <stddef.h>

struct held_gpu {
	char uuid[NVML_UUID_SIZE];
	size_t bytes;
};

struct held {
	bool at_most; /* the bytes are an upper bound */
	int n;
	struct held_gpu gpus[GPU_MAX];
};

struct record {
	int dir, fd;
	char name[32];
	char path[128]; /* of the directory, for messages; cut */
	uint64_t start;
};

/*
 * Open and lock the record of @process. Returns 0; -EAGAIN if another command has the lock; or
 * another negative errno with *@why set, as rundir_create() does. @record->path is always set.
 */
int record_open(struct record *record, const struct process *process, const char **why);

/* The records of one process that commands of this user and, if that is root, of the process's user keep. */
struct record_claim {
	struct record records[2];
	int n;
};

/*
 * Open and lock them, so that no such command works on @process by the driver until record_release(). 0; -EAGAIN: one
 * works on it now; -EBUSY: 'cudaw pause --driver' has paused it; or another negative errno if that cannot be known.
 * Unless it returns 0, nothing is locked and @why is set.
 */
int record_claim(struct record_claim *claim, const struct process *process, char *why, size_t size);

void record_release(struct record_claim *claim);

/* Write what the process held. Returns 0 or a negative errno. */
int record_write(const struct record *record, const struct held *held);

/* False if nothing was written for this process. No GPUs: nobody knew what it held. */
bool record_read(const struct record *record, struct held *held);

/* Remove the file; it stays locked until it is closed. */
void record_remove(const struct record *record);

/*
 * Close it. Forked children that have it open keep the lock, and may still write: the caller says
 * by @clean that there are none, and that a file without contents can go.
 */
void record_close(const struct record *record, bool clean);

/* Remove the records of processes that have ended. */
void record_prune(const struct record *record);

#endif
