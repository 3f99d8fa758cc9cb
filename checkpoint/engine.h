/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENGINE_H
#define CUDAW_ENGINE_H
/*
 * Pause and resume of this process.
 *
 * A pause does, in this order:
 *	1. check that the host memory is there
 *	2. wait for open stream captures, close the gate, wait for calls inside it
 *	3. wait until the GPU has done all submitted work
 *	4. copy all managed memory to the host
 *	5. unmap it, which gives it back
 *	6. have the driver checkpoint what is left (CUDAW_RELEASE=all, the default, r570+)
 * A failure in 1 to 4 undoes what was done and lets the job run on. A failure of 5 maps and copies
 * back. A failure of 6 leaves the job paused with its context on the GPU, and says so.
 *
 * A resume does the reverse, and waits for GPU memory with back-off as long as it has to. When it
 * fails for another reason the data stays in host memory and it can be tried again.
 *
 * One thread at a time calls engine_pause() and engine_resume(), never one of the program's.
 */
#include "checkpoint/protocol.h"
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an operation is doing, for other threads to read; the numbers are written atomically. */
struct engine_progress {
	const char *phase; /* "drain", "copy", "release", "restore", "memory" */
	size_t done;       /* bytes */
	size_t total;
	bool waiting; /* a resume waits for GPU memory */
	bool cancel;  /* set by others: give up where that is still possible */
};

struct engine_result {
	const char *code; /* END_* of protocol.h */
	char message[512];
	char note[256]; /* about a success; empty: nothing to say */
	double ms;
	size_t bytes; /* copied */
};

/* @timeout_ms bounds the wait for captures, calls and kernels. */
void engine_pause(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		  struct engine_result *result);

/* @timeout_ms bounds the wait for GPU memory; 0: none. Past it the job is as paused as before. */
void engine_resume(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		   struct engine_result *result);

/*
 * What is left to do when a pause or a resume has been answered: pin the host memory of a paused
 * job whose context is still there, so that the resume is as fast as the bus; give back host
 * memory of a running one. *@cancel, set by others, ends it early.
 */
bool engine_is_untidy(void);
void engine_tidy(const struct cuda_driver *drv, const bool *cancel);

/* Bytes in host memory. */
size_t engine_paused_bytes(void);

/* True from the first unmap of a pause until the job runs again. */
bool engine_is_paused(void);

/* True while the driver's checkpoint holds the context: no driver call may be made. */
bool engine_is_released(void);

#endif
