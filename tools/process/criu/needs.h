/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_NEEDS_H
#define CUDAW_NEEDS_H
/*
 * Checks whether this machine meets the needs of a snapshot, before anything is started. Each
 * refusal names the expected and the found value.
 */
#include "tools/process/criu/criu_files.h"
#include "tools/process/probe.h"
#include "checkpoint/snapshot/open.h"
#include "common/gpu/gpu.h"

struct needs {
	struct probing probing; /* since needs_ask() */
	struct probe probe;     /* the GPUs here */
	/* For each device of the snapshot the index of the device that replaces it. */
	int map[GPU_MAX];
	bool moved; /* at least one is another GPU than before */
	/*
	 * Then: all GPUs of the machine of the snapshot, also those that no process saw, and which one takes the place of
	 * each. None if NVML does not know all GPUs, then or now.
	 */
	struct needs_pair {
		char from[NVML_UUID_SIZE], to[NVML_UUID_SIZE];
	} pairs[GPU_MAX];
	size_t npairs;
};

/* Whether the mapped programs and libraries exist, in the same builds. An exit code. */
int needs_files(const struct snapshot *snapshot);

/*
 * Whether the open files of the processes are as CRIU requires them, the working directory exists,
 * and standard input is a terminal if the processes have one. For root, the paths to files of
 * another user's job must have no links of users (links.h). The image of @files has been checked.
 * An exit code.
 */
int needs_opened(const struct snapshot *snapshot, const struct criu_files *files);

/* Begin to ask the driver; needs_gpus() waits for the answer. Before any thread. An exit code. */
int needs_ask(struct needs *needs);

/*
 * The driver, and GPUs of the same kind, after needs_ask(). @choices are @count texts "OLD=NEW",
 * each an index or a UUID, or one "NEW" if there is one device. A device that is not chosen stays
 * on its GPU if that is on this machine and free, and else goes to the first free GPU of its kind.
 * An exit code.
 */
int needs_gpus(const struct snapshot *snapshot, char **choices, size_t count, struct needs *needs);

/*
 * Whether these GPUs have enough free memory, if NVML tells: that of the snapshot, and the memory
 * that the driver's restore needs beside it (the manifest's "held"). An exit code.
 */
int needs_memory(const struct snapshot *snapshot, const struct needs *needs);

#endif
