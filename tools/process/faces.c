/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/faces.h"

#include "common/version.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int faces_directory(char *path, size_t size)
{
	char exe[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *prefix;

	if (len < 0)
		return -errno;
	exe[len] = '\0';
	prefix = dirname(dirname(exe));
	if (snprintf(path, size, "%s/lib/cudaw-%s", prefix, cudaw_version) >= (int)size)
		return -ENAMETOOLONG;
	return 0;
}

const char *not_preloadable(const char *path)
{
	/* The loader splits LD_PRELOAD at both, and has no way to quote them. */
	return strpbrk(path, ": ") ? "the loader cannot preload from a path with a space or a colon"
				   : NULL;
}
