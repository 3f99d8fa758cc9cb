/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ADDRESSING_H
#define CUDAW_ADDRESSING_H
/*
 * addressing: how vmem's addresses are backed (vmem.h, translate.h), or whether vmem is off.
 * CUDAW_TO_DRIVER and CUDAW_ADDRESSING decide; if neither does, the abilities of the devices do.
 */
#include "vmem/cuda_driver.h"

#include <stdbool.h>
#include <stddef.h>

enum addressing { ADDRESSING_ANY, ADDRESSING_MAPPED, ADDRESSING_TRANSLATED, ADDRESSING_NATIVE };

/* What these variables said at the first call. */
enum addressing addressing_asked(void);

/*
 * True if some device cannot map memory at vmem's addresses, with the reason in @text. After
 * cuInit(); needs no context.
 */
bool addressing_cannot_map(const struct cuda_driver *drv, char *text, size_t size);

/* Record for the user that addresses are translated from now on, because of @why. */
void addressing_set_translated(const char *why);

/* "mapped", "translated" or "native"; *@why is empty if the user asked for it. */
const char *addressing_name(const char **why);

#endif
