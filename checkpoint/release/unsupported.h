/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNSUPPORTED_H
#define CUDAW_UNSUPPORTED_H
/*
 * Objects that neither cudaw nor the driver's checkpoint can carry through a pause. A pause checks
 * for them before it changes anything, so that the job is not harmed. driver_memory.h counts them.
 *
 * Multicast objects cannot be carried. Neither can memory of which the program has a dma-buf: a
 * device on the bus reads and writes it, whatever is mapped. With translated addressing textures on linear
 * memory cannot either: the driver keeps real addresses in them, which change. Memory that another process
 * shares otherwise than by tickets (checkpoint/sharing) stays in place with CUDAW_RELEASE=memory, which leaves
 * it to the driver; with CUDAW_RELEASE=all this process would have to give up memory that the other one still
 * uses. Host memory of cuMemCreate() that is left to the driver stays in place as well: the driver checkpoints
 * a process that has any, and cannot restore it (999), whether the memory is mapped or not, and exported or not
 * [H200, driver 580.159.04: tests/programs/memory_kinds.c, vmm_host].
 *
 * Nor can the contexts of processes that share a GPU if their kernels wait for those of other
 * processes (ranks.h). In a context which the driver has restored it cannot interrupt a kernel: as
 * soon as another context of the GPU has work, a kernel that runs for more than about 5 s ends with
 * error 719 (Xid 109), and two that wait for each other always do [H200, driver 580.159.04:
 * tests/programs/restored_probe.c].
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
