/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NEEDS_H
#define CUDAW_NEEDS_H
/*
 * Whether this machine has what a snapshot needs, found out before anything is started. Each
 * refusal says what was expected and what was found.
 */
#include "tools/process/criu_files.h"
#include "tools/process/probe.h"
#include "checkpoint/snapshot/open.h"
#include "common/gpu.h"

struct needs {
	struct probing probing; /* since needs_ask() */
	struct probe probe;     /* the GPUs here */
	/* For each device of the snapshot the index of the one here that takes its place. */
	int map[GPU_MAX];
	bool moved; /* one of them is another GPU than it was */
};

/* The programs and libraries that the process maps: there, and the same builds. An exit code. */
int needs_files(const struct snapshot *snapshot);

/*
 * What the processes have open, by their image, which has been checked: files as CRIU wants them,
 * the working directory, and a terminal as standard input if they have one. An exit code.
 */
int needs_opened(const struct snapshot *snapshot, const struct criu_files *files);

/* Begin to ask the driver; needs_gpus() waits for the answer. Before any thread. An exit code. */
int needs_ask(struct needs *needs);

/*
 * The driver, and GPUs of the same kind, after needs_ask(). @choices are @count texts "OLD=NEW",
 * each an index or a UUID, or one "NEW" where there is one device. What is not chosen stays on its
 * GPU where that is here and free, and else goes to the first free one of its kind. An exit code.
 */
int needs_gpus(const struct snapshot *snapshot, char **choices, size_t count, struct needs *needs);

/*
 * That as much memory is free on these GPUs as the snapshot has and the driver's restore takes
 * beside it (the manifest's "held"), where NVML says how much is. An exit code.
 */
int needs_memory(const struct snapshot *snapshot, const struct needs *needs);

#endif
