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
static int locked = -1;    /* the lock file */
static bool in_rundir;
static char parent[PATH_MAX], name[NAME_MAX + 1];
static struct stat made; /* its name, when that was made */
static int trouble; /* why it does not listen there again: a negative errno, once that was said */

static struct sockaddr_un address(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%.64s", directory, name);
	return addr;
}

static bool is_answered(void)
{
	struct sockaddr_un addr = address();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* EAGAIN: it listens, and has yet to take others. */
	bool answered = fd >= 0 &&
			(!connect(fd, (struct sockaddr *)&addr, sizeof(addr)) || errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return answered;
}

static const char *lock_name(void)
{
	static char text[NAME_MAX + 1];

	snprintf(text, sizeof(text), "%.64s.lock", name);
	return text;
}

/* A daemon that is about to end has removed its socket, and still has the lock for a moment. */
static int lock(void)
{
	locked = rundir_lock(directory, lock_name());
	for (int i = 0; locked == -EAGAIN && i < LOCK_TRIES && !is_answered(); i++) {
		usleep(LOCK_WAIT_US);
		locked = rundir_lock(directory, lock_name());
	}
	return locked < 0 ? locked : 0;
}

/* Returns a descriptor or a negative errno: -EAGAIN if somebody listens there, with or without the lock. */
static int listen_here(bool everybody)
{
	struct sockaddr_un addr = address();
	struct stat now;
	int err, fd;

	if (is_answered())
		return -EAGAIN;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (unlinkat(directory, name, 0) && errno != ENOENT)
		goto err_close;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    fchmodat(directory, name, everybody ? 0666 : 0600, 0) ||
	    fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW) || listen(fd, BACKLOG))
		goto err_close;
	made = now;
	return fd;

err_close:
	err = -errno;
	close(fd);
	return err;
}

static int listen_locked(struct daemon_socket *opened)
{
	int err = lock();

	opened->fd = err ? err : listen_here(opened->everybody);
	if (opened->fd >= 0)
		return 0;
	pr_err("%s/%s cannot be made: %s", parent, name,
	       opened->fd == -EAGAIN ? "another daemon already listens there"
				     : strerror(-opened->fd));
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

/* The lock file that is there now is the one that this process has locked. */
static bool has_lock(void)
{
	struct stat ours, there;

	return !fstat(locked, &ours) &&
	       !fstatat(directory, lock_name(), &there, AT_SYMLINK_NOFOLLOW) &&
	       ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* In the directory that is there now. Returns 0 or a negative errno, as listen_here(). */
static int listen_again(struct daemon_socket *opened)
{
	int was = locked, fd;

	if (!has_lock())
		locked = rundir_lock(directory, lock_name());
	fd = locked < 0 ? locked : listen_here(opened->everybody);
	if (fd < 0) {
		if (locked != was && locked >= 0)
			rundir_unlock(locked);
		locked = was;
		return fd;
	}
	if (locked != was)
		rundir_unlock(was);
	close(opened->fd);
	opened->fd = fd;
	return 0;
}

static void say_trouble(int err, const char *why)
{
	if (!err)
		log_notice(LOG_PREFIX "%s/%s was removed: the daemon listens there again", parent,
			   name);
	else if (err == -EAGAIN && err != trouble)
		pr_err("%s/%s: another daemon listens there now: this one only serves the jobs that are connected",
		       parent, name);
	else if (err != trouble)
		pr_err("%s/%s was removed, and no job finds the daemon: %s", parent, name, why);
	trouble = err;
}

bool socket_look(struct daemon_socket *opened)
{
	int was = directory, err;
	const char *why = NULL;

	if (is_found())
		return true;
	directory = open_parent(&why);
	err = directory < 0 ? directory : listen_again(opened);
	if (err) {
		if (directory >= 0)
			close(directory);
		directory = was;
	} else {
		close(was);
	}
	say_trouble(err, why ? why : strerror(-err));
	return err != -EAGAIN;
}

void socket_remove(void)
{
	if (directory >= 0 && is_found())
		unlinkat(directory, name, 0);
}
