/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/wake.h"
#include "common/ownfd.h"

#include <errno.h>
#include <fcntl.h>
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
	int fd = wake_writer();
	char byte = 0;

	if (fd >= 0 && write(fd, &byte, 1) < 0)
		return; /* the pipe is full: the thread wakes up */
}

int wake_reader(void)
{
	return ownfd_get(&ends[0]);
}

int wake_writer(void)
{
	return ownfd_get(&ends[1]);
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
