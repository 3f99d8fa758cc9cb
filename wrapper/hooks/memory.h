/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_MEMORY_H
#define CUDAW_HOOKS_MEMORY_H

#include <stdbool.h>

/*
 * Give back the device memory that is kept for later allocations: that of stream-ordered frees,
 * for whose streams this waits, and memory that no allocation uses. To be called inside the gate. False: there was none.
 */
bool memory_give_back(void);

#endif
