/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the command: the process TEST_CONTINUES gets SIGCONT as soon as a file has been
 * renamed, which is how a snapshot becomes valid. If TEST_RENAMES is set, it waits until there is a file of that name
 * before, and fails if something is in it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((visibility("default"))) int renameat(int from, const char *old, int to,
						    const char *name)
{
	__typeof__(&renameat) next = (__typeof__(next))dlsym(RTLD_NEXT, "renameat");
	const char *pid = getenv("TEST_CONTINUES"), *file = getenv("TEST_RENAMES");
	struct stat st = {0};
	int ret;

	while (file && stat(file, &st))
		usleep(1000);
	if (st.st_size) {
		errno = EIO;
		return -1;
	}
	ret = next(from, old, to, name);

	if (pid)
		kill(atoi(pid), SIGCONT);
	return ret;
}
