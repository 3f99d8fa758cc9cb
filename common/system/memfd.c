/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/memfd.h"
#include "common/system/write_signals.h"

#include <fcntl.h>
#include <unistd.h>

int memfd_make_sized(const char *name, size_t size)
{
	struct write_signals signals;
	int fd = memfd_make(name), error = 0;

	if (fd < 0)
		return fd;
	write_signals_block(&signals);
	if (ftruncate(fd, size) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		error = errno;
	write_signals_unblock(&signals);
	if (!error)
		return fd;
	close(fd);
	errno = error;
	return -1;
}
