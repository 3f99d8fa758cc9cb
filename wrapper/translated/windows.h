/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_WINDOWS_H
#define CUDAW_WRAPPER_WINDOWS_H
/*
 * windows: the access policy windows of streams, with translated addressing. A window is a hint to
 * the L2 cache about a range of addresses, and the driver has the real ones. The windows of
 * per-thread default streams are not kept, as only their threads can change them. Thread-safe.
 */
#include <cuda.h>

/* @value, with a real address, was set on @stream. */
void windows_set(CUstream stream, const CUlaunchAttributeValue *value);

/* The window of another stream was copied to @stream. */
void windows_copied(CUstream stream);

/* @stream is gone. */
void windows_remove(CUstream stream);

/*
 * Memory came back elsewhere: set all windows anew. To be called with the gate closed; changes the
 * current context.
 */
void windows_move(void);

#endif
