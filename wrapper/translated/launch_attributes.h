/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_LAUNCH_ATTRIBUTES_H
#define CUDAW_WRAPPER_LAUNCH_ATTRIBUTES_H
/*
 * launch_attributes: the attributes of a launch, with translated addressing. An access policy
 * window has an address, so the driver gets a copy of the attributes if there is one. The driver
 * writes into another: the node of a kernel that the GPU may update.
 */
#include "wrapper/translated/copies.h"

#include <cuda.h>

/* Rewrite the addresses of *@config, in copies. Returns the error with which the launch fails. */
CUresult launch_attributes_before(struct copies *copies, const CUlaunchConfig **config);

/* Give the program what the driver wrote into @config, which launch_attributes_before() made. */
void launch_attributes_after(const CUlaunchConfig *config);

#endif
