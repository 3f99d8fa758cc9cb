/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first connection of the process to cudawd is made while another thread forks: here by a fork behind
 * connect(). The child lives until TEST_FORKS, a file, is gone.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int forks;

__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *addr,
						   socklen_t len)
{
	__typeof__(&connect) next = (__typeof__(next))dlsym(RTLD_NEXT, "connect");
	const struct sockaddr_un *to = (const struct sockaddr_un *)addr;
	const char *path = getenv("TEST_FORKS");
	int ret = next(fd, addr, len);

	if (ret || !path || addr->sa_family != AF_UNIX || !strstr(to->sun_path, "cudawd.sock") ||
	    forks++ || fork())
		return ret;
	while (!access(path, F_OK))
		usleep(10000);
	_exit(0);
}
