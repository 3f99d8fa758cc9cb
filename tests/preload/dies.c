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

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	const struct iovec *line = msg->msg_iov;
	static int sent;

	if (line->iov_len == 6 && !memcmp(line->iov_base, "commit", 6) &&
	    sent++ == atoi(getenv("TEST_COMMITS")))
		raise(SIGKILL);
	return syscall(SYS_sendmsg, fd, msg, flags);
}
