/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/daemon.h"
#include "common/protocol/rundir.h"
#include "common/text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int check_daemon(int fd, const char **why)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	    (peer.uid == geteuid() || peer.uid == 0))
		return 0;
	*why = "it belongs to another user";
	return -EPERM;
}

static int connect_path(const char *path, const char **why)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, err;

	if (snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path) >=
	    (int)sizeof(addr.sun_path)) {
		*why = error_text(ENAMETOOLONG);
		return -ENAMETOOLONG;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		err = check_daemon(fd, why);
		if (!err)
			return fd;
	} else {
		err = -errno;
		*why = error_text(-err);
	}
	if (fd >= 0)
		close(fd);
	return err;
}

int daemon_connect(const char *which, const char **why)
{
	char path[PATH_MAX];
	int dir, fd;

	if (strcmp(which, "user") != 0)
		return connect_path(strcmp(which, "node") != 0 ? which : DAEMON_NODE, why);
	dir = rundir_path(geteuid(), path, sizeof(path), why);
	if (!dir)
		dir = rundir_open(path, geteuid(), why);
	if (dir < 0)
		return dir;
	/* The directory was checked; and a path may be longer than an address. */
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d/" DAEMON_NAME, dir);
	fd = connect_path(path, why);
	close(dir);
	return fd;
}
