/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_COUNTED_H
#define CUDAW_COUNTED_H
/* What the hooks of counted memory share. */
#include <cuda.h>

/* The allocation of the real driver at @ptr is freed, or about to be. */
void forget_pointer(CUdeviceptr ptr);

/* There is a graph with allocation nodes: from now on launches look at what graphs hold. */
void graphs_have_memory(void);

#endif
