/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/stdfds.h"
#include "common/system/memfd.h"

#include <fcntl.h>
#include <unistd.h>

#define STDFDS (STDERR_FILENO + 1)

/* The program may put a file of its own there meanwhile: so the file is one that it cannot have. */
void stdfds_occupy(struct stdfds *stdfds)
{
	int file = -1;

	*stdfds = (struct stdfds){{OWNFD_NONE, OWNFD_NONE, OWNFD_NONE}};
	for (int number = 0; number < STDFDS; number++) {
		int fd;

		if (fcntl(number, F_GETFD) >= 0)
			continue;
		if (file < 0)
			file = memfd_make("cudaw-stream");
		fd = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, number);
		if (fd >= STDFDS)
			close(fd);
		else if (fd >= 0)
			ownfd_set(&stdfds->places[fd], fd);
	}
	if (file >= 0)
		close(file);
}

void stdfds_release(struct stdfds *stdfds)
{
	for (int number = 0; number < STDFDS; number++)
		ownfd_close(&stdfds->places[number]);
}
