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

/* A capture on @stream began; it ended, or the stream was destroyed. */
void captures_add(CUstream stream);
void captures_remove(CUstream stream);

/* True while a capture is open. Captures that ended unseen are forgotten. Needs no context. */
bool captures_open(const struct cuda_driver *drv);

/* In the child of a fork: there are none. */
void captures_after_fork(void);

#endif
