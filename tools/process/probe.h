/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROBE_H
#define CUDAW_PROBE_H
/*
 * Asks the real driver for its version and its devices. A child process asks, so that a driver
 * that crashes or hangs does not take this process with it. No context is made, so no GPU memory
 * is used.
 */
#include "common/gpu/nvml.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROBE_DEVICES 64

struct probe_device {
	char name[96];
	char uuid[NVML_UUID_SIZE]; /* empty: the driver does not tell */
	int major, minor;          /* compute capability */
	size_t memory;
	bool vmm, rdma;
};

struct probe {
	char failure[256]; /* empty: none */
	int version;       /* 13000 is CUDA 13.0; 0: the driver did not tell */
	bool checkpoint;   /* it has cuCheckpointProcessCheckpoint */
	int ndevices;
	struct probe_device devices[PROBE_DEVICES];
};

/* A child that asks. */
struct probing {
	struct probe *shared;
	pid_t pid;
	int fd;    /* of a pipe that the child closes when it ends */
	int error; /* an errno: there is no child */
};

/*
 * Begin to ask the driver at @path. The caller must not have made threads yet, as the child of a
 * process with threads may not load a library. Failures are in the answer.
 */
void probe_begin(struct probing *probing, const char *path);

/* Wait for the answer, at most a minute. Failures are in @probe->failure. */
void probe_end(struct probing *probing, struct probe *probe);

#endif
