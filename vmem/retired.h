/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RETIRED_H
#define CUDAW_RETIRED_H
/*
 * retired: the ids of the allocations that the program has freed, while work on the GPU may still
 * use their memory. There are few, and mostly none. Thread-safe; a lock of its own, under which
 * nothing is called.
 */
#include <stdbool.h>

/* False without host memory. */
bool retired_add(unsigned long long id);
void retired_remove(unsigned long long id);

/* No lock while there are none. */
bool retired_has(unsigned long long id);

#endif
