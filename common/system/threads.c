/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/threads.h"

#include <pthread.h>

int threads_start(const char *name, void *(*run)(void *))
{
	sigset_t all, mask;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	error = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (error)
		return -error;
	pthread_setname_np(thread, name);
	pthread_detach(thread);
	return 0;
}
