/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/size_signal.h"

#include <time.h>

void size_signal_block(struct size_signal *before)
{
	sigset_t set;

	sigfillset(&set);
	pthread_sigmask(SIG_SETMASK, &set, &before->mask);
	before->pends = !sigpending(&set) && sigismember(&set, SIGXFSZ) == 1;
}

void size_signal_unblock(const struct size_signal *before)
{
	const struct timespec now = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	if (!before->pends)
		sigtimedwait(&set, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
}
