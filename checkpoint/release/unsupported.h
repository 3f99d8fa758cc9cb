/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNSUPPORTED_H
#define CUDAW_UNSUPPORTED_H
/*
 * What neither we nor the driver's checkpoint can carry through a pause: asked for before anything
 * is changed, so that the job is not harmed. The objects themselves are counted by driver_memory.h.
 *
 * Multicast objects have no place in a pause. With translated addressing neither have graphs, nor
 * textures on linear memory: the driver keeps real addresses in them, which change. Memory that
 * another process shares stays where it is with CUDAW_RELEASE=memory, which leaves it to the
 * driver; with CUDAW_RELEASE=all this process would have to let go of what the other one goes on
 * using.
 */
#include "checkpoint/release/release.h"

#include <stddef.h>

/*
 * 0 if a pause that releases @choice can carry all that there is. Else -ENOTSUP, and a text of at
 * most @size bytes that names what it cannot carry, with numbers.
 */
int unsupported_check(const struct cuda_driver *drv, enum release_choice choice, char *text,
		      size_t size);

#endif
