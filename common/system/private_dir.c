/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/private_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Others may have put something else in its place meanwhile. If its mode cannot be set, nobody can open it. */
static void allow_user(int dir, const char *path)
{
	int fd = openat(dir, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char name[64];
	struct stat st;

	if (fd < 0)
		return;
	/* fchmod(2) does not take a descriptor of this kind, and any other cannot be had. */
	snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", fd);
	if (!fstat(fd, &st) && st.st_uid == geteuid() && (st.st_mode & S_IRWXU) != S_IRWXU)
		chmod(name, S_IRWXU);
	close(fd);
}

int private_dir_make(int dir, const char *path)
{
	if (mkdirat(dir, path, S_IRWXU))
		return -errno;
	allow_user(dir, path);
	return 0;
}
