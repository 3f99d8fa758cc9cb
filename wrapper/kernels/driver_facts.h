/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_DRIVER_FACTS_H
#define CUDAW_WRAPPER_DRIVER_FACTS_H
/* driver_facts: the driver's answers about a function. */
#include "kparams/kparams.h"
#include "wrapper/kernels/images.h"

#include <cuda.h>
#include <stdint.h>

#define DRIVER_FACTS_PARAMS 4096

struct driver_facts {
	struct kp_param params[DRIVER_FACTS_PARAMS]; /* offsets and sizes */
	int nparams;                                 /* -1: not known */
	const char *name;                            /* "": not known */
	CUmodule module;                             /* NULL: not known */
	CUcontext ctx;                               /* the current one */
	uint32_t arch;                               /* of its device */
};

/* Ask about @function, which is of @kind. To be called inside the gate, and without a lock. */
void driver_facts_ask(struct driver_facts *facts, enum images_kind kind, CUfunction function);

#endif
