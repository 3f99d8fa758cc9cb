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

/* Of a socket that this process has made. */
static int directory = -1; /* -1: it has made none */
static int locked = -1;
static bool in_rundir;
static char parent[PATH_MAX], name[NAME_MAX + 1];
static struct stat made; /* its name, when that was made */

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
	locked = fd;
	return fd < 0 ? fd : 0;
}

/* Returns a descriptor or a negative errno. */
static int listen_here(bool everybody)
{
	struct sockaddr_un addr = address();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (unlinkat(directory, name, 0) && errno != ENOENT)
		goto err_close;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    fchmodat(directory, name, everybody ? 0666 : 0600, 0) ||
	    fstatat(directory, name, &made, AT_SYMLINK_NOFOLLOW) || listen(fd, BACKLOG))
		goto err_close;
	return fd;

err_close:
	err = -errno;
	close(fd);
	return err;
}

static int listen_locked(struct daemon_socket *opened)
{
	int err = lock();

	if (err) {
		pr_err("%s/%s: %s", parent, name,
		       err == -EAGAIN ? "another daemon already listens there" : strerror(-err));
		return err;
	}
	opened->fd = listen_here(opened->everybody);
	if (opened->fd >= 0)
		return 0;
	pr_err("%s/%s cannot be made: %s", parent, name, strerror(-opened->fd));
	return opened->fd;
}

/* Returns a descriptor or a negative errno with @why. */
static int open_parent(const char **why)
{
	int fd;

	if (in_rundir)
		return rundir_create(parent, geteuid(), why);
	fd = open(*parent ? parent : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*why = strerror(errno);
	return fd < 0 ? -errno : fd;
}

static int open_at_path(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash || !slash[1] || strlen(slash + 1) > 64 || slash - path >= PATH_MAX) {
		pr_err("%s: expected an absolute path", path);
		return -EINVAL;
	}
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	snprintf(name, sizeof(name), "%s", slash + 1);
	return 0;
}

static int open_in_rundir(void)
{
	const char *why;
	int err = rundir_path(geteuid(), parent, sizeof(parent), &why);

	if (err)
		pr_err("%s cannot be used: %s", parent, why);
	snprintf(name, sizeof(name), "%s", DAEMON_NAME);
	return err;
}

/* NULL for @path: in the runtime directory. */
static int open_own(const char *path, struct daemon_socket *opened)
{
	const char *why;
	int err;

	in_rundir = opened->users_own = !path;
	opened->everybody = path && geteuid() == 0;
	err = path ? open_at_path(path) : open_in_rundir();
	if (err)
		return err;
	directory = open_parent(&why);
	if (directory >= 0)
		return listen_locked(opened);
	pr_err("%s cannot be used: %s", parent, why);
	return directory;
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
	return !path && take_passed(opened) ? 0 : open_own(path, opened);
}

/* Whoever connects to the path comes to this process. */
static bool is_found(void)
{
	char path[sizeof(parent) + sizeof(name)];
	struct stat found;

	snprintf(path, sizeof(path), "%s/%s", parent, name);
	return !lstat(path, &found) && found.st_dev == made.st_dev && found.st_ino == made.st_ino;
}

/* In the directory that is there now. */
static int listen_again(struct daemon_socket *opened)
{
	int err, fd = -1;

	if (locked >= 0)
		rundir_unlock(locked);
	err = lock();
	if (!err)
		fd = listen_here(opened->everybody);
	if (fd < 0)
		return err;
	close(opened->fd);
	opened->fd = fd;
	return 0;
}

int socket_look(struct daemon_socket *opened)
{
	int was = directory, err;
	const char *why;

	if (directory < 0 || is_found())
		return 0;
	directory = open_parent(&why);
	err = directory < 0 ? 0 : listen_again(opened);
	if (directory < 0 || !is_found()) {
		if (directory >= 0)
			close(directory);
		directory = was;
	} else {
		close(was);
	}
	if (err == -EAGAIN)
		pr_err("%s/%s: another daemon listens there now: this one ends", parent, name);
	return err == -EAGAIN ? err : 0;
}

void socket_remove(void)
{
	if (directory >= 0 && is_found())
		unlinkat(directory, name, 0);
}
