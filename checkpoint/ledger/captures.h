/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CAPTURES_H
#define CUDAW_CAPTURES_H
/*
 * The open stream captures. A pause waits for them to end: it needs to synchronise, which is not
 * allowed during a capture and would break it. Thread-safe.
 *
 * The driver is asked whether a capture is still open, by the handle of its stream. The stream must
 * exist meanwhile: each function that is called before the end of a capture, a stream or a context
 * waits until no thread is asking about it. These queries are short, and a thread that asks holds
 * no lock that the driver or the waiting thread needs.
 */
#include "vmem/cuda_driver.h"

#include <stdbool.h>

struct capture;

/*
 * A capture on @stream, of @ctx, begins; @into: it goes into an existing graph. captures_begin() is
 * called before the driver begins the capture, and captures_begun() after that, with the driver's
 * success. In between the capture counts as open, and functions that end it wait. NULL without host
 * memory. CU_STREAM_PER_THREAD is the stream of the calling thread in @ctx, which is current.
 */
struct capture *captures_begin(CUstream stream, CUcontext ctx, bool into);
void captures_begun(struct capture *c, bool success);

/*
 * The capture on @stream ends, with @ctx current, or the stream is about to be destroyed. Returns whether
 * the capture goes into an existing graph.
 */
bool captures_remove(CUstream stream, CUcontext ctx);

/*
 * captures_context_ending(): @ctx may end in the next call. Its captures, and those of its green
 * contexts, count as open, without a query, until one of the other functions says that @ctx lives on
 * or has ended.
 */
void captures_context_ending(CUcontext ctx);
void captures_context_lives(CUcontext ctx);
void captures_remove_context(CUcontext ctx);

/*
 * True while a capture is open. Forgets captures that ended unseen, captures whose stream the
 * driver no longer knows, and captures of CU_STREAM_PER_THREAD whose thread has ended. Needs no
 * context, and holds no lock while it asks the driver.
 */
bool captures_open(const struct cuda_driver *drv);

#endif
