/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CAPTURES_H
#define CUDAW_CAPTURES_H
/*
 * The stream captures that are open. A pause waits for them to end, since the synchronisation that
 * it needs is not allowed during one and would break it; and memory freed during one is kept
 * until it has ended, for the same reason. Thread-safe.
 *
 * Whether a capture is still open is asked of the driver, by the handle of its stream. The stream
 * must not go meanwhile: each function that is called before the end of a capture, a stream or a
 * context waits until no thread asks for it any more. These questions are short, and whoever asks
 * holds no lock that the driver or the waiting thread needs.
 */
#include "vmem/driver.h"

#include <stdbool.h>

/*
 * Get memory for one capture, before it begins: false where there is none. Each success is followed
 * by captures_add(), or by captures_unreserve() where no capture began.
 */
bool captures_reserve(void);
void captures_unreserve(void);

/*
 * A capture on @stream, of @ctx, began; it ends, or the stream is about to be destroyed.
 * CU_STREAM_PER_THREAD is the stream of the calling thread. The end tells whether
 * captures_set_into() was called since.
 */
void captures_add(CUstream stream, CUcontext ctx);
bool captures_remove(CUstream stream);

/*
 * @ctx may end in the call that follows: its captures count as open, and are not asked
 * for, until one of the others says that it lives on or has ended.
 */
void captures_context_ending(CUcontext ctx);
void captures_context_lives(CUcontext ctx);
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
