/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIZE_SIGNAL_H
#define CUDAW_SIZE_SIGNAL_H
/*
 * A write beyond the limit of the file size (RLIMIT_FSIZE) raises SIGXFSZ, which would end the program. Between
 * these two calls it only fails (EFBIG): all signals are blocked in the calling thread, and in threads that it
 * makes meanwhile. The second call takes back a SIGXFSZ that did not pend before. It may change errno.
 */
#include <signal.h>
#include <stdbool.h>

struct size_signal {
	sigset_t mask;
	bool pends;
};

void size_signal_block(struct size_signal *before);
void size_signal_unblock(const struct size_signal *before);

#endif
