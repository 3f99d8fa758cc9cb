/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the command: whoever listens at a socket is the process TEST_PEER, so that a test
 * can stand in for a job.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int name, void *value,
						      socklen_t *size)
{
	__typeof__(&getsockopt) next = (__typeof__(next))dlsym(RTLD_NEXT, "getsockopt");
	const char *pid = getenv("TEST_PEER");
	int ret = next(fd, level, name, value, size);

	if (pid && !ret && level == SOL_SOCKET && name == SO_PEERCRED)
		((struct ucred *)value)->pid = atoi(pid);
	return ret;
}
