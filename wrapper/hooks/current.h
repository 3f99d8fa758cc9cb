/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_CURRENT_H
#define CUDAW_HOOKS_CURRENT_H
/* The current context of the calling thread, for a call of the driver on behalf of another one. */
#include <cuda.h>
#include <stdbool.h>

/* Make @ctx (NULL: any) current. *@pushed: current_leave() has to make the old one current again. */
CUresult current_enter(CUcontext ctx, bool *pushed);
void current_leave(bool pushed);

#endif
