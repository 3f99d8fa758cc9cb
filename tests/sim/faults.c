/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/faults.h"
#include "tests/sim/sim.h"

static struct sim_faults faults; /* under sim.lock */

__attribute__((visibility("protected"))) void sim_control(const struct sim_faults *set,
							  struct sim_faults *before)
{
	pthread_mutex_lock(&sim.lock);
	if (before)
		*before = faults;
	faults = *set;
	pthread_mutex_unlock(&sim.lock);
}

__attribute__((visibility("protected"))) size_t sim_used(void)
{
	size_t bytes = 0;

	pthread_mutex_lock(&sim.lock);
	for (CUdevice dev = 0; dev < sim.config.devices; dev++)
		bytes += account_used(dev);
	pthread_mutex_unlock(&sim.lock);
	return bytes;
}

CUresult faults_strike(const char *name)
{
	unsigned long n;

	if (!faults.armed)
		return CUDA_SUCCESS;
	n = __atomic_add_fetch(faults.calls, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < SIM_FAULTS; i++) {
		if (n == faults.at[i])
			faults.struck[i] = name;
		else if (!faults.for_good || faults.struck[i] != name)
			continue;
		return faults.result;
	}
	return CUDA_SUCCESS;
}
