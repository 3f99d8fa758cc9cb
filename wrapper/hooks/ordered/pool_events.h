/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOL_EVENTS_H
#define CUDAW_HOOKS_POOL_EVENTS_H
/*
 * The program's events, as far as they order the streams of pool_streams.h: a free in one stream, an event behind
 * it, and another stream that waits for the event. An allocation there may have the memory before the GPU has
 * reached the free.
 *
 * An event means what was recorded last, and only cuEventRecord() is followed. What another way to record may
 * have made of an event is not known, so an event that has met one is never followed again: nodes of graphs
 * and captured records, which record at each launch; attributes of launches; a context; another process.
 *
 * As long as the process has no stream of pool_streams.h, a call costs one more test. All functions are for any
 * thread, without pools_lock.
 */
#include <cuda.h>

/* Before it is recorded in another way. */
void pool_events_leave(CUevent event);
void pool_events_leave_node(const CUgraphNodeParams *params);
void pool_events_leave_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

static inline void pool_events_leave_launch(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; config && config->attrs && i < config->numAttrs; i++)
		pool_events_leave_attribute(config->attrs[i].id, &config->attrs[i].value);
}

/*
 * Before it is destroyed, or when it was made, before the program knows it: the end of an earlier one with this
 * handle, by a green context, was not seen.
 */
void pool_events_forget(CUevent event);

#endif
