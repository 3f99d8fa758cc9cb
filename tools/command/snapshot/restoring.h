/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RESTORING_H
#define CUDAW_RESTORING_H
/*
 * One run of 'cudaw restore', after its options: restore.c reads them and prints the result,
 * restoring_checks.c finds out before anything is started why it cannot succeed, restoring.c starts
 * the processes and resumes the job.
 */
#include "checkpoint/snapshot/files/io.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "common/gpu/gpu.h"
#include "tools/command/snapshot/opened.h"
#include "tools/command/snapshot/reading.h"
#include "tools/job/jobs.h"
#include "tools/process/criu/criu.h"
#include "tools/process/criu/criu_files.h"
#include "tools/process/memory/memory_files.h"
#include "tools/process/monitors.h"
#include "tools/process/criu/needs.h"
#include "tools/process/criu/ports.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct restoring {
	char path[PATH_MAX];
	char *choices[GPU_MAX];
	size_t nchoices;
	bool paused, unverified, json, check, wait;
	bool left; /* somebody paused it before it ran on */
	double began;
	double check_ms, criu_ms, start_ms;
	struct opened opened;
	struct snapshot whole; /* of all parts, by opened_unite() */
	int devices[SNAPSHOT_PARTS_MAX][GPU_MAX];
	struct reading readings
		[SNAPSHOT_PARTS_MAX]; /* of the GPU memory of each part, unless @unverified */
	struct needs needs;
	struct criu_files files;
	json_t *facts; /* host.json, once it is checked */
	pid_t first;   /* of the new processes, which is our child */
	struct memory_files memory_files;
	struct tcp_sockets ports;
	struct monitors monitors;
	char runtime_dir[PATH_MAX]; /* of the job's socket */
	uid_t uid;                  /* owner of @runtime_dir */
	struct criu criu;
	bool refused; /* the process image need not be read to its end */
	int image;    /* result of reading it: 0 or a negative errno, with image_error */
	size_t image_bytes;
	struct snapshot_error image_error;
};

/*
 * All checks that need no new process, except that of the GPU memory. With r->check the others go on after one
 * that fails. Returns an exit code.
 */
int restoring_check(struct restoring *r);

/*
 * Start the processes, which do not run before the GPU memory is checked, tell the job where its
 * snapshot is, and resume it unless it is to stay paused. @resume, which has room for all parts, has the figures of
 * their resumes. Returns an exit code after a message; the new processes have been ended then, unless @r->left is set.
 */
int restoring_run(struct restoring *r, struct job_transfer *resume);

#endif
