/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROBE_H
#define CUDAW_PROBE_H
/*
 * What the real driver says of itself and of its devices. A child process asks, so that a driver
 * that crashes or hangs does neither to us; no context is made, so no GPU memory is used.
 */
#include "common/nvml.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROBE_DEVICES 64

struct probe_device {
	char name[96];
	char uuid[NVML_UUID_SIZE]; /* empty where the driver does not say */
	int major, minor;          /* compute capability */
	size_t memory;
	bool vmm, rdma;
};

struct probe {
	char failure[256]; /* what went wrong; empty: nothing */
	int version;       /* 13000 is CUDA 13.0; 0 where the driver did not say */
	bool checkpoint;   /* it has cuCheckpointProcessCheckpoint */
	int ndevices;
	struct probe_device devices[PROBE_DEVICES];
};

/* A child that asks. */
struct probing {
	struct probe *shared;
	pid_t pid;
	int fd;    /* of a pipe, which ends when the child does */
	int error; /* an errno: there is no child */
};

/*
 * Begin to ask the driver at @path. The child of a process with threads may not load a library:
 * threads are to be made later. What fails is in the answer.
 */
void probe_begin(struct probing *probing, const char *path);

/* Wait for the answer, for a minute at the most. Never fails but in @probe->failure. */
void probe_end(struct probing *probing, struct probe *probe);

#endif
