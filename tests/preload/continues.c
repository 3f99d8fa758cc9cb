/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the command: the process TEST_CONTINUES gets SIGCONT as soon as a file has been
 * renamed, which is how a snapshot becomes valid.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int renameat(int from, const char *old, int to,
						    const char *name)
{
	__typeof__(&renameat) next = (__typeof__(next))dlsym(RTLD_NEXT, "renameat");
	const char *pid = getenv("TEST_CONTINUES");
	int ret = next(from, old, to, name);

	if (pid)
		kill(atoi(pid), SIGCONT);
	return ret;
}
