/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNSUPPORTED_H
#define CUDAW_UNSUPPORTED_H
/*
 * Objects that neither cudaw nor the driver's checkpoint can carry through a pause. A pause checks
 * for them before it changes anything, so that the job is not harmed. driver_memory.h counts them.
 *
 * Multicast objects cannot be carried. Neither can memory of which the program has a dma-buf: a
 * device on the bus reads and writes it, whatever is mapped. With translated addressing textures on linear memory cannot
 * either: the driver keeps real addresses in them, which change. Memory that another process shares
 * otherwise than by tickets (checkpoint/sharing) stays in place with CUDAW_RELEASE=memory, which leaves it to the driver; with CUDAW_RELEASE=all
 * this process would have to give up memory that the other one still uses.
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
