/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/write_signals.h"

#include <time.h>

void write_signals_block(struct write_signals *before)
{
	sigset_t set;

	sigfillset(&set);
	pthread_sigmask(SIG_SETMASK, &set, &before->mask);
	sigpending(&before->pending);
}

static void take_back(int number, const struct write_signals *before)
{
	const struct timespec now = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	if (!sigismember(&before->pending, number))
		sigtimedwait(&set, NULL, &now);
}

void write_signals_unblock(const struct write_signals *before)
{
	take_back(SIGXFSZ, before);
	take_back(SIGPIPE, before);
	pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
}
