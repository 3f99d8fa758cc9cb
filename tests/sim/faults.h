/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIM_FAULTS_H
#define CUDAW_SIM_FAULTS_H
/*
 * For a test that has the simulated driver in its own process: calls that fail by their number,
 * whatever function they are of. The test finds sim_control() by dlsym().
 */
#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>

#define SIM_FAULTS 2

struct sim_faults {
	bool armed;                   /* count, and fail */
	unsigned long *calls;         /* the test's; each but a pure look-up adds 1, atomically */
	unsigned long at[SIM_FAULTS]; /* what makes *calls so much fails; 0: none */
	bool for_good;                /* and all later calls of the same functions */
	CUresult result;
	const char *struck[SIM_FAULTS]; /* the functions that failed; NULL: none yet */
};

/*
 * Set what fails from now on, and leave what was so far in *@before, where that is not NULL. Makes
 * no call itself, so it returns at once in a locked driver.
 */
void sim_control(const struct sim_faults *faults, struct sim_faults *before);

/* Bytes in use on all devices. */
size_t sim_used(void);

/* For the driver: what this call of @name returns, if it is to fail. With sim.lock held. */
CUresult faults_strike(const char *name);

#endif
