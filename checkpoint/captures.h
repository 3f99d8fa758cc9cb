/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CAPTURES_H
#define CUDAW_CAPTURES_H
/*
 * The stream captures that are open. A pause waits for them to end, since the synchronisation that
 * it needs is not allowed during one and would break it; and memory freed during one is kept
 * until it has ended, for the same reason. Thread-safe.
 */
#include "vmem/driver.h"

#include <stdbool.h>

/*
 * A capture on @stream, of @ctx, began; it ended, or the stream was destroyed; @ctx was destroyed.
 * CU_STREAM_PER_THREAD is the stream of the calling thread. The end tells whether
 * captures_set_into() was called since.
 */
void captures_add(CUstream stream, CUcontext ctx);
bool captures_remove(CUstream stream);
void captures_remove_context(CUcontext ctx);

/* The capture on @stream goes into a graph that was there before. */
void captures_set_into(CUstream stream);

/*
 * True while a capture is open. Forgets captures that ended unseen, those whose stream the driver
 * does not know any more, and those of CU_STREAM_PER_THREAD whose thread has ended. Needs no
 * context, and holds no lock while it asks the driver.
 */
bool captures_open(const struct cuda_driver *drv);

#endif
