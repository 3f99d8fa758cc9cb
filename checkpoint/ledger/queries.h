/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_QUERIES_H
#define CUDAW_QUERIES_H
/*
 * The events and streams that a program may query while it is paused: those of this process alone,
 * by handle. And the contexts, and the states of the devices' primary contexts.
 *
 * A watchdog thread asks every now and then whether an event has passed (PyTorch's does for each
 * collective), and its program aborts if the watchdog does not return. At rest the answer cannot
 * change, so a pause asks the driver for all of them once, before the driver is checkpointed.
 *
 * A thread may find the process at rest, and be suspended until the program runs again, or until the
 * next pause. So each answer checks once more, under the lock, that this is a rest: from queries_ask()
 * to queries_settle().
 *
 * An event that is destroyed at rest goes before the program runs again. Until then the driver gives
 * its handle to no other.
 *
 * Not here, so that a query of it waits for the resume: an event that other processes may record,
 * what belongs to a green context, and what another library created without our knowledge.
 */
#include "checkpoint/ledger/contexts.h"
#include "vmem/cuda_driver.h"

#include <stdbool.h>
#include <stdint.h>

enum query_kind { QUERY_EVENT, QUERY_STREAM, QUERY_KINDS };

/* @handle has been created in @ctx. If there is no host memory for it, it is not known. */
void queries_add(enum query_kind kind, const void *handle, CUcontext ctx);

/* @handle is about to be destroyed. */
void queries_remove(enum query_kind kind, const void *handle);

/*
 * With the process at rest, before the gate lets callers answer: ask the driver for all, one call
 * for each, and take note of @contexts, which are all but green ones. The calling thread has no
 * current context afterwards. 0; -ETIME after @deadline_ms (limits_ms()), -ECANCELED if *@cancel
 * became true: then nothing can be answered.
 */
int queries_ask(const struct cuda_driver *drv, const struct context_list *contexts,
		double deadline_ms, const bool *cancel);

/* True if the driver said that @handle is done. False: not at rest, not known, or anything else. */
bool queries_done(enum query_kind kind, const void *handle);

/* Destroy @event at queries_settle(). False: not at rest, or not known. */
bool queries_destroy(CUevent event);

/*
 * Before the gate opens: end the rest, and do what was put off. No context is current in the calling
 * thread then.
 */
void queries_settle(const struct cuda_driver *drv);

/* The device of @ctx. False: it was not there at the latest rest, is green, or has ended since. */
bool queries_context(CUcontext ctx, CUdevice *dev);

/* The state of the primary context of @dev. False: not at rest, or not known. */
bool queries_primary(CUdevice dev, unsigned int *flags, int *active);

#endif
