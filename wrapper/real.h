/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REAL_H
#define CUDAW_REAL_H
/*
 * The real driver: `real`, a table of all its functions that driver.calls names (generated from
 * cuda.h, calls.h), and the shorter table by which vmem and checkpoint call it.
 */
#include "vmem/cuda_driver.h"

#include "calls.h"

/* An exported function, in tables that follow the list of exports. */
struct driver_call {
	void *fn;    /* call_NAME or hook_NAME; NULL: straight to the real driver */
	void **real; /* the place for the real function */
};

/* The real driver's functions for vmem and checkpoint; NULL: it cannot pause programs. */
const struct cuda_driver *driver_table(void);

/* By the face, once, as it binds the functions of the driver. @driver stays. */
void driver_table_set(const struct cuda_driver *driver);

#endif
