/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/pidfd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* <asm-generic/socket.h> of Linux 6.5 */
#endif

/* getsockopt(2) has no part in what common/system/uncancelled.c does for those that open something. */
static int above_streams(int fd)
{
	int high;

	if (fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (high < 0)
		high = -errno;
	close(fd);
	return high;
}

/* -ENOSYS: the kernel does not know. */
static int ask_kernel(int socket)
{
	socklen_t len = sizeof(int);
	int fd;

	if (!getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &len))
		return above_streams(fd);
	if (errno == ENOPROTOOPT)
		return -ENOSYS;
	/* Linux before 6.16 has no descriptor of one that has ended. */
	return errno == EINVAL ? -ESRCH : -errno;
}

int pidfd_of_peer(int socket, pid_t pid)
{
	int fd = ask_kernel(socket);

	if (fd != -ENOSYS || pid <= 0)
		return fd;
	fd = syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : above_streams(fd);
}

bool pidfd_peer_runs(int socket)
{
	struct pollfd end = {.fd = ask_kernel(socket), .events = POLLIN};
	bool runs;

	if (end.fd < 0)
		return end.fd != -ESRCH;
	runs = poll(&end, 1, 0) <= 0;
	close(end.fd);
	return runs;
}
