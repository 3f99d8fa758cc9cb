/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ADDRESSING_H
#define CUDAW_ADDRESSING_H
/*
 * addressing: which way vmem's addresses are translated (vmem.h, translate.h), or that there is no
 * vmem: CUDAW_ADDRESSING, and where it says nothing what the devices can.
 */
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>

enum addressing { ADDRESSING_ANY, ADDRESSING_MAPPED, ADDRESSING_TRANSLATED, ADDRESSING_NATIVE };

/* What CUDAW_ADDRESSING asked for at the first call. */
enum addressing addressing_asked(void);

/*
 * True where some device cannot map memory where vmem needs it, with the reason in @text. After
 * cuInit(); needs no context.
 */
bool addressing_cannot_map(const struct cuda_driver *drv, char *text, size_t size);

/* From now on, in words for the user: addresses are translated, because of @why. */
void addressing_set_translated(const char *why);

/* "mapped", "translated" or "native"; *@why is empty where the user asked for it. */
const char *addressing_name(const char **why);

#endif
