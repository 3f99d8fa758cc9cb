/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/rundir.h"
#include "common/ascii.h"
#include "common/settings.h"
#include "common/system/private_dir.h"
#include "common/system/shortage.h"
#include "common/text.h"

#define LOG_PREFIX "rundir: "
#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PF_EXITING 4 /* include/linux/sched.h; proc(5) shows it */

int rundir_path(uid_t uid, char *path, size_t size, const char **why)
{
	const char *dir = setting_text(SETTING_RUNTIME_DIR);
	int len;

	if (dir && *dir != '/') {
		snprintf(path, size, "%s", dir);
		*why = "CUDAW_RUNTIME_DIR is not an absolute path";
		return -EINVAL;
	}
	if (dir)
		len = snprintf(path, size, "%s", dir);
	else
		len = snprintf(path, size, RUNDIR_TMP "/" RUNDIR_PREFIX "%u", uid);
	if (len >= (int)size) {
		*why = "the path is too long";
		return -ENAMETOOLONG;
	}
	/* If the path ends in a slash, open(2) follows a symbolic link in spite of O_NOFOLLOW. */
	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	return 0;
}

/* 0: there is no /proc. */
static ino_t mounts_here(void)
{
	struct stat st;

	return stat("/proc/thread-self/ns/mnt", &st) ? 0 : st.st_ino;
}

void rundir_see_home(struct rundir_home *home)
{
	struct stat root = {0};

	stat("/", &root);
	home->root_dev = root.st_dev;
	home->root = root.st_ino;
	home->mounts = mounts_here();
}

bool rundir_sees_home(const struct rundir_home *home)
{
	struct stat root;

	return !stat("/", &root) && root.st_dev == home->root_dev && root.st_ino == home->root &&
	       mounts_here() == home->mounts;
}

int rundir_find_home(struct rundir_home *home, const char **why)
{
	home->user = geteuid();
	rundir_see_home(home);
	return rundir_path(home->user, home->path, sizeof(home->path), why);
}

/*
 * The reason @text for a refusal or, if another user owns the path, that user and a way out: in a
 * directory like /tmp only the owner can remove it.
 */
static const char *reason(const char *text, uid_t found, uid_t owner)
{
	static __thread char buf[160] __attribute__((tls_model("initial-exec")));

	if (owner == RUNDIR_ANYONE || found == owner)
		return text;
	snprintf(
		buf, sizeof(buf),
		"it belongs to another user (%u): set CUDAW_RUNTIME_DIR to a directory of your own",
		found);
	return buf;
}

/* The reason why a directory could not be opened. ENOTDIR alone does not show a symbolic link. */
static const char *open_reason(const char *path, uid_t owner, int err)
{
	const char *text = error_text(err);
	struct stat st;

	if ((err != ENOTDIR && err != ELOOP && err != EACCES) || lstat(path, &st))
		return text;
	if (S_ISLNK(st.st_mode))
		text = "it is a symbolic link";
	else if (err == ENOTDIR)
		text = "it is not a directory";
	return reason(text, st.st_uid, owner);
}

int rundir_open(const char *path, uid_t owner, const char **why)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int err = 0;

	if (fd < 0) {
		err = errno;
		*why = open_reason(path, owner, err);
		return -err;
	}
	if (fstat(fd, &st) < 0) {
		err = -errno;
		*why = error_text(-err);
	} else if (owner != RUNDIR_ANYONE && st.st_uid != owner) {
		err = -EPERM;
		*why = reason(NULL, st.st_uid, owner);
	} else if (st.st_mode & (S_IRWXG | S_IRWXO)) {
		err = -EACCES;
		*why = "other users may enter it (its mode must be 0700)";
	}
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int rundir_create(const char *path, uid_t owner, const char **why)
{
	int err = private_dir_make(AT_FDCWD, path);

	if (err && err != -EEXIST) {
		*why = error_text(-err);
		return err;
	}
	return rundir_open(path, owner, why);
}

int rundir_open_own(const char **why)
{
	char path[PATH_MAX];
	int error = rundir_path(geteuid(), path, sizeof(path), why);

	return error ? error : rundir_create(path, geteuid(), why);
}

static const struct {
	const char *suffix;
	int type;
} kinds[] = {
	[RUNDIR_CONTROL] = {RUNDIR_SUFFIX, SOCK_STREAM},
	[RUNDIR_SHARING] = {RUNDIR_SHARING_SUFFIX, SOCK_SEQPACKET},
};

static void socket_name(enum rundir_socket kind, pid_t pid, char *name, size_t size)
{
	snprintf(name, size, "%d%s", pid, kinds[kind].suffix);
}

static struct sockaddr_un socket_address(enum rundir_socket kind, int dir, pid_t pid)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/thread-self/fd/%d/%d%s", dir, pid,
		 kinds[kind].suffix);
	return addr;
}

int rundir_connect(enum rundir_socket kind, int dir, pid_t pid)
{
	struct sockaddr_un addr = socket_address(kind, dir, pid);
	int fd = socket(AF_UNIX, kinds[kind].type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		err = errno;
		close(fd);
		return -err;
	}
	return fd;
}

/*
 * CRIU binds the socket of a process image to the same address again, so that address is the real
 * path if it is short enough. listen_in() notices a path that does not lead to @dir when it sets
 * the mode.
 */
static struct sockaddr_un bound_address(enum rundir_socket kind, int dir, const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d%s", path, getpid(),
		     kinds[kind].suffix) < (int)sizeof(addr.sun_path))
		return addr;
	return socket_address(kind, dir, getpid());
}

/*
 * Bind @fd to the socket of this process. If the name is taken, a dead process of the same PID left
 * it, unless a process answers: two PID namespaces (containers) may share the directory.
 */
static int bind_socket(enum rundir_socket kind, int fd, int dir, const char *path)
{
	struct sockaddr_un addr = bound_address(kind, dir, path);
	char name[32];
	int other;

	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;

	other = rundir_connect(kind, dir, getpid());
	if (other != -ECONNREFUSED && other != -ENOENT) {
		if (other >= 0)
			close(other);
		return -EADDRINUSE;
	}
	socket_name(kind, getpid(), name, sizeof(name));
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ? -errno : 0;
}

static int listen_in(enum rundir_socket kind, int dir, const char *path)
{
	int fd = socket(AF_UNIX, kinds[kind].type | SOCK_CLOEXEC, 0);
	char name[32];
	int err;

	if (fd < 0)
		return -errno;
	err = bind_socket(kind, fd, dir, path);
	if (err)
		goto err_close;
	/* umask(2) would affect other threads. The directory keeps other users out until then. */
	socket_name(kind, getpid(), name, sizeof(name));
	if (fchmodat(dir, name, 0600, 0) < 0 || listen(fd, 64) < 0) {
		err = -errno;
		unlinkat(dir, name, 0);
		goto err_close;
	}
	return fd;

err_close:
	close(fd);
	return err;
}

/* As another user the process would make a directory that its own user cannot use. */
int rundir_create_home(const struct rundir_home *home, const char **why)
{
	if (geteuid() == home->user)
		return rundir_create(home->path, home->user, why);
	*why = "this process runs as another user now";
	return -EPERM;
}

int rundir_listen(enum rundir_socket kind, const struct rundir_home *home, bool quiet)
{
	const char *why;
	int fd, dir = rundir_create_home(home, &why);

	if (dir < 0) {
		if (!quiet)
			pr_err("%s cannot be used: %s", home->path, why);
		return dir;
	}
	fd = listen_in(kind, dir, home->path);
	close(dir);
	if (fd >= 0 || quiet)
		return fd;
	if (fd == -EADDRINUSE)
		pr_err("%s/%d%s is in use by another PID namespace: give each its "
		       "own CUDAW_RUNTIME_DIR",
		       home->path, getpid(), kinds[kind].suffix);
	else
		pr_err("no socket in %s: %s", home->path, error_text(-fd));
	return fd;
}

bool rundir_is_unnamed(enum rundir_socket kind, const struct rundir_home *home)
{
	char path[sizeof(home->path) + 32];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%d%s", home->path, getpid(), kinds[kind].suffix);
	return lstat(path, &st) && errno == ENOENT && rundir_sees_home(home);
}

void rundir_unlink(enum rundir_socket kind, const struct rundir_home *home)
{
	const char *why;
	char name[32];
	int dir = rundir_open(home->path, home->user, &why);

	if (dir < 0)
		return;
	socket_name(kind, getpid(), name, sizeof(name));
	unlinkat(dir, name, 0);
	close(dir);
}

int rundir_open_lock(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return -errno;
	/* umask(2) may have removed permissions that the next process needs. */
	if (!fchmod(fd, 0600))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int rundir_lock(int dir, const char *name)
{
	int fd = rundir_open_lock(dir, name);
	int err;

	if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

void rundir_unlock(int fd)
{
	flock(fd, LOCK_UN);
	close(fd);
}

void rundir_make_id(uint64_t seed, char id[RUNDIR_ID_SIZE])
{
	uint32_t first, rest;

	/* The finaliser of splitmix64: neighbouring PIDs get very different ids. */
	seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9UL;
	seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebUL;
	seed ^= seed >> 31;
	first = (seed >> 32) % 6;
	rest = seed & 0xfffff;
	snprintf(id, RUNDIR_ID_SIZE, "%c%05x", 'a' + first, rest);
}

bool rundir_is_id(const char *id)
{
	for (int i = 0; i < RUNDIR_ID_SIZE - 1; i++)
		if (!ascii_is_xdigit(id[i]))
			return false;
	return !id[RUNDIR_ID_SIZE - 1];
}

/* Read the beginning of /proc/@pid/@name into @text. */
static bool read_of(pid_t pid, const char *name, char *text, size_t size)
{
	ssize_t len;
	int fd;

	snprintf(text, size, "/proc/%d/%s", pid, name);
	fd = open(text, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, size - 1);
	close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	return true;
}

bool rundir_process(pid_t pid, struct rundir_process *process)
{
	char buf[1024], *p;
	unsigned long flags;

	if (!read_of(pid, "stat", buf, sizeof(buf)))
		return false;
	/* proc(5) has the format. The name in brackets may itself have brackets and spaces. */
	p = strrchr(buf, ')');
	if (!p || sscanf(p + 1,
			 " %c %d %*d %*d %*d %*d %lu %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld "
			 "%*d %" SCNu64,
			 &process->state, &process->parent, &flags, &process->threads,
			 &process->start) != 5)
		return false;
	process->exits = flags & PF_EXITING;
	/* If a zombie has threads, only its main thread has ended. */
	process->ended = (process->state == 'Z' || process->state == 'X') && process->threads < 2;
	return true;
}

uint64_t rundir_start_time(pid_t pid)
{
	struct rundir_process p;

	errno = 0;
	if (!rundir_process(pid, &p))
		return is_shortage(-errno) ? RUNDIR_START_UNKNOWN : 0;
	return p.ended ? 0 : p.start;
}

/* The file is the thread's: the main thread may have ended. A kernel without time namespaces has none. */
uint64_t rundir_common_start(pid_t pid)
{
	long long seconds = 0, ns = 0, hertz = sysconf(_SC_CLK_TCK);
	uint64_t start = rundir_start_time(pid);
	char text[256];

	if (!start || start == RUNDIR_START_UNKNOWN)
		return start;
	if (read_of(gettid(), "timens_offsets", text, sizeof(text)))
		sscanf(text, "%*s %*d %*d boottime %lld %lld", &seconds, &ns);
	else if (is_shortage(-errno))
		return RUNDIR_START_UNKNOWN;
	return start - (uint64_t)(seconds * hertz + ns / (1000000000 / hertz));
}

bool rundir_is_common_start(uint64_t a, uint64_t b)
{
	return a - b + 1 <= 2;
}

void rundir_job_id(char id[RUNDIR_ID_SIZE])
{
	const char *job = setting_text(SETTING_JOB);
	pid_t pid = getpid();

	if (job && rundir_is_id(job))
		memcpy(id, job, RUNDIR_ID_SIZE);
	else
		rundir_make_id((rundir_start_time(pid) << 22) ^ (uint64_t)pid, id);
}
