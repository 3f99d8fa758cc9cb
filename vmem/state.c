/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of vmem have in common. */
#include "vmem/internal.h"

#include "common/system/forks.h"

struct vmem_state vm = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.devices = {[0 ... GPU_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}},
};
FORKS_LOCK_IN(vm, lock);

static void init_device_locks(void)
{
	for (int dev = 0; dev < GPU_MAX; dev++)
		pthread_mutex_init(&vm.devices[dev].lock, NULL);
}
FORKS_CHILD(init_device_locks);

unsigned long long vmem_given_back(void)
{
	return __atomic_load_n(&vm.given_back, __ATOMIC_SEQ_CST);
}

void vmem_note_given_back(void)
{
	__atomic_add_fetch(&vm.given_back, 1, __ATOMIC_SEQ_CST);
}
