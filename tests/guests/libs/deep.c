/* SPDX-License-Identifier: Apache-2.0 */
/* A library that sets signal handlers, for loading.c. */
#include <signal.h>

__sighandler_t deep_set(int sig, __sighandler_t handler);

__sighandler_t deep_set(int sig, __sighandler_t handler)
{
	struct sigaction act = {.sa_handler = handler}, old;

	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}
