/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRITE_SIGNALS_H
#define CUDAW_WRITE_SIGNALS_H
/*
 * A write beyond the limit of the file size (RLIMIT_FSIZE) raises SIGXFSZ, and one to a pipe that nobody has open for
 * reading SIGPIPE, which would end the program. Between these two calls they only fail (EFBIG, EPIPE): all signals are
 * blocked in the calling thread, and in threads that it makes meanwhile. The second call takes back one of the two that
 * did not pend before. It may change errno. Async-signal-safe.
 */
#include <signal.h>

struct write_signals {
	sigset_t mask, pending;
};

void write_signals_block(struct write_signals *before);
void write_signals_unblock(const struct write_signals *before);

#endif
