/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/wake.h"
#include "common/system/ownfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct ownfd ends[2] = {OWNFD_NONE, OWNFD_NONE};

int wake_open(void)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	for (int i = 0; i < 2; i++)
		ownfd_set(&ends[i], fds[i]);
	return 0;
}

void wake_close(void)
{
	for (int i = 0; i < 2; i++)
		ownfd_close(&ends[i]);
}

void wake_up(void)
{
	/* If the program has closed the other end, a write would be a signal to it (SIGPIPE). */
	int fd = wake_reader() < 0 ? -1 : ownfd_get(&ends[1]), saved_errno = errno;
	char byte = 0;

	/*
	 * write() is a cancellation point, and threads of the program call this in driver calls and in
	 * handlers of signals, which may come in the midst of malloc().
	 */
	if (fd >= 0)
		syscall(SYS_write, fd, &byte, 1); /* if the pipe is full, the thread wakes up */
	errno = saved_errno;
}

int wake_reader(void)
{
	return ownfd_get(&ends[0]);
}

void wake_drain(void)
{
	int fd = wake_reader();
	char bytes[64];

	while (fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0)
		;
}

bool wake_is_lost(void)
{
	return ownfd_is_lost(&ends[0]) || ownfd_is_lost(&ends[1]) || ends[0].fd < 0;
}

void wake_take_restored(void)
{
	for (int i = 0; i < 2; i++)
		ownfd_take_restored(&ends[i]);
}
