/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTEXT_LOCK_H
#define CUDAW_CONTEXT_LOCK_H
/*
 * A lock under which no context ends (context.c ends them): while a caller has it, those that it knows
 * live. It may wait for a context whose end waits for the GPU.
 */
#include <stdbool.h>

void context_lock(void);
/* False: another thread has it. */
bool context_trylock(void);
void context_unlock(void);

#endif
