/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process is killed after it has sent so many lines "commit" (TEST_COMMITS; 0: before the
 * first).
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) ssize_t send(int fd, const void *data, size_t size,
						    int flags)
{
	static int sent;

	if (size == 7 && !memcmp(data, "commit\n", 7) && sent++ == atoi(getenv("TEST_COMMITS")))
		raise(SIGKILL);
	return syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
}
