/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/socket.h"
#include "common/protocol/daemon.h"
#include "common/protocol/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LOG_PREFIX "cudawd: "
#include "common/log.h"

#define SYSTEMD_FD   3 /* SD_LISTEN_FDS_START */
#define LOCK_TRIES   200
#define LOCK_WAIT_US 10000
#define BACKLOG      64

static int directory = -1; /* of the socket; -1: it is not ours */
static char name[NAME_MAX + 1];

static struct sockaddr_un address(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%.64s", directory, name);
	return addr;
}

static bool is_answered(void)
{
	struct sockaddr_un addr = address();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool answered = fd >= 0 && !connect(fd, (struct sockaddr *)&addr, sizeof(addr));

	if (fd >= 0)
		close(fd);
	return answered;
}

/* A daemon that is about to end has removed its socket, and still has the lock for a moment. */
static int lock(void)
{
	char lock_name[NAME_MAX + 1];
	int fd;

	snprintf(lock_name, sizeof(lock_name), "%.64s.lock", name);
	fd = rundir_lock(directory, lock_name);
	for (int i = 0; fd == -EAGAIN && i < LOCK_TRIES && !is_answered(); i++) {
		usleep(LOCK_WAIT_US);
		fd = rundir_lock(directory, lock_name);
	}
	return fd < 0 ? fd : 0;
}

/* Returns a descriptor or a negative errno. */
static int listen_here(mode_t mode)
{
	struct sockaddr_un addr = address();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (unlinkat(directory, name, 0) && errno != ENOENT)
		goto err_close;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    fchmodat(directory, name, mode, 0) || listen(fd, BACKLOG))
		goto err_close;
	return fd;

err_close:
	err = -errno;
	close(fd);
	return err;
}

static int listen_locked(mode_t mode, const char *where, struct daemon_socket *opened)
{
	int err = lock();

	if (err) {
		pr_err("%s: %s", where,
		       err == -EAGAIN ? "another daemon already listens there" : strerror(-err));
		return err;
	}
	opened->fd = listen_here(mode);
	if (opened->fd >= 0)
		return 0;
	pr_err("no socket in %s: %s", where, strerror(-opened->fd));
	return opened->fd;
}

static int open_path(const char *path, struct daemon_socket *opened)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];

	if (!slash || !slash[1] || strlen(slash + 1) > 64 || slash - path >= PATH_MAX - 1) {
		pr_err("%s: expected an absolute path", path);
		return -EINVAL;
	}
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path) + 1, path);
	snprintf(name, sizeof(name), "%s", slash + 1);
	directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0) {
		pr_err("%s: %s", parent, strerror(errno));
		return -errno;
	}
	opened->everybody = geteuid() == 0;
	return listen_locked(opened->everybody ? 0666 : 0600, path, opened);
}

static int open_users_own(struct daemon_socket *opened)
{
	char path[PATH_MAX];
	const char *why;
	int err = rundir_path(geteuid(), path, sizeof(path), &why);

	directory = err ? err : rundir_create(path, geteuid(), &why);
	if (directory < 0) {
		pr_err("%s cannot be used: %s", path, why);
		return directory;
	}
	snprintf(name, sizeof(name), "%s", DAEMON_NAME);
	opened->users_own = true;
	return listen_locked(0600, path, opened);
}

/* The socket that systemd has passed to this process. False: none. */
static bool take_passed(struct daemon_socket *opened)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	int listens = 0;
	socklen_t size = sizeof(listens);

	if (!pid || !count || atoi(pid) != getpid() || strcmp(count, "1") != 0 ||
	    getsockopt(SYSTEMD_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
		return false;
	fcntl(SYSTEMD_FD, F_SETFD, FD_CLOEXEC);
	fcntl(SYSTEMD_FD, F_SETFL, fcntl(SYSTEMD_FD, F_GETFL) | O_NONBLOCK);
	opened->fd = SYSTEMD_FD;
	opened->everybody = geteuid() == 0;
	return true;
}

int socket_open(const char *path, struct daemon_socket *opened)
{
	*opened = (struct daemon_socket){.fd = -1};
	if (path)
		return open_path(path, opened);
	return take_passed(opened) ? 0 : open_users_own(opened);
}

void socket_remove(void)
{
	if (directory >= 0)
		unlinkat(directory, name, 0);
}
