/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int program_find(pid_t pid, struct program *program)
{
	char path[64];
	struct stat st;
	ssize_t n;
	int fd, ret;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (stat(path, &st))
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d/auxv", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, program->auxv, sizeof(program->auxv));
	ret = n < 0 ? -errno : n ? 0 : -ESRCH; /* the process has ended */
	close(fd);
	if (ret)
		return ret;
	program->size = n;
	program->dev = st.st_dev;
	program->ino = st.st_ino;
	return 0;
}

bool program_is_same(const struct program *a, const struct program *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       !memcmp(a->auxv, b->auxv, a->size);
}
