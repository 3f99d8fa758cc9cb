/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CAPTURES_H
#define CUDAW_CAPTURES_H
/*
 * The open stream captures. A pause waits for them to end: it needs to synchronise, which is not
 * allowed during a capture and would break it. For the same reason memory that is freed during a
 * capture is kept until the capture ends. Thread-safe.
 *
 * The driver is asked whether a capture is still open, by the handle of its stream. The stream must
 * exist meanwhile: each function that is called before the end of a capture, a stream or a context
 * waits until no thread is asking about it. These queries are short, and a thread that asks holds
 * no lock that the driver or the waiting thread needs.
 */
#include "vmem/driver.h"

#include <stdbool.h>

/*
 * Get memory for one capture, before it begins. False if there is none. Each success is followed by
 * captures_add(), or by captures_unreserve() if no capture began.
 */
bool captures_reserve(void);
void captures_unreserve(void);

/*
 * captures_add(): a capture on @stream, of @ctx, has begun. captures_remove(): it ends, or the
 * stream is about to be destroyed; returns true if captures_set_into() was called since.
 * CU_STREAM_PER_THREAD is the stream of the calling thread.
 */
void captures_add(CUstream stream, CUcontext ctx);
bool captures_remove(CUstream stream);

/*
 * captures_context_ending(): @ctx may end in the next call. Its captures count as open, without a
 * query, until one of the other functions says that @ctx lives on or has ended.
 */
void captures_context_ending(CUcontext ctx);
void captures_context_lives(CUcontext ctx);
void captures_remove_context(CUcontext ctx);

/* The capture on @stream goes into an existing graph. */
void captures_set_into(CUstream stream);

/*
 * True while a capture is open. Forgets captures that ended unseen, captures whose stream the
 * driver no longer knows, and captures of CU_STREAM_PER_THREAD whose thread has ended. Needs no
 * context, and holds no lock while it asks the driver.
 */
bool captures_open(const struct cuda_driver *drv);

#endif
