/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc's cancellation points, for the injected libraries: no call into us is one, since driver calls are
 * none. A thread of the program that is cancelled in the midst of a call of ours would leave locks, files and
 * memory behind, and the next call would wait for a lock for ever.
 *
 * The libraries, and the simulated driver, are linked with --wrap for each name below: their calls of read()
 * come to __wrap_read(), which makes the call with cancellation disabled. A request to cancel stays pending
 * until the thread's next own cancellation point. What the real driver does is left to it. The launch path has
 * no such call.
 *
 * Functions that open something are here for another reason as well: no descriptor of ours is 0 to 2. A program
 * that has closed these numbers gets them again from the next call that opens something, and may still print to
 * them: into our socket, or our pipe. So each result is moved above them at once. Each is close-on-exec, whatever
 * the caller has asked for.
 *
 * The Makefile takes the names from here, and tests/cli/test_uncancelled.py checks that none is missing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNCANCELLED(type, name, parameters, arguments)                  \
	type __real_##name parameters;                                  \
	type __wrap_##name parameters;                                  \
	type __wrap_##name parameters                                   \
	{                                                               \
		int state;                                              \
		type result;                                            \
                                                                        \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); \
		result = __real_##name arguments;                       \
		pthread_setcancelstate(state, NULL);                    \
		return result;                                          \
	}

/* The same for those that return a descriptor, cancellation points or not. What is lost is opened again. */
#define UNCANCELLED_FD(name, parameters, arguments)                      \
	int __real_##name parameters;                                    \
	int __wrap_##name parameters;                                    \
	int __wrap_##name parameters                                     \
	{                                                                \
		int state, result;                                       \
                                                                         \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);  \
		do                                                       \
			result = above_streams(__real_##name arguments); \
		while (result == LOST);                                  \
		pthread_setcancelstate(state, NULL);                     \
		return result;                                           \
	}

int __real_close(int fd);
int __real_fcntl(int fd, int command, void *arg);

/*
 * Move @fd above the numbers of the standard streams. If no number is free, it is closed: -1 and errno. LOST: the program
 * has closed it, or has put a file of its own there (dup2(2)), which is left alone: ours are close-on-exec. Then errno is
 * EMFILE, as it may pass.
 */
#define LOST (-2)

static int above_streams(int fd)
{
	int high, error;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = __real_fcntl(fd, F_DUPFD_CLOEXEC, (void *)(STDERR_FILENO + 1L));
	error = errno;
	if (__real_fcntl(fd, F_GETFD, NULL) == FD_CLOEXEC) {
		__real_close(fd);
		errno = error;
		return high;
	}
	if (high >= 0)
		__real_close(high);
	errno = EMFILE;
	return LOST;
}

/* What cannot be opened again. */
static int above_or_none(int fd)
{
	int high = above_streams(fd);

	return high == LOST ? -1 : high;
}

/* clang-format off */
UNCANCELLED_FD(accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags), (fd, addr, len, flags | SOCK_CLOEXEC))
UNCANCELLED(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *time, struct timespec *left), (clock, flags, time, left))
UNCANCELLED(int, close, (int fd), (fd))
UNCANCELLED(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
UNCANCELLED(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
UNCANCELLED(int, fclose, (FILE *file), (file))
UNCANCELLED(int, fflush, (FILE *file), (file))
UNCANCELLED(char *, fgets, (char *text, int size, FILE *file), (text, size, file))
UNCANCELLED(int, fputc, (int c, FILE *file), (c, file))
UNCANCELLED(int, fputs, (const char *text, FILE *file), (text, file))
UNCANCELLED(int, fsync, (int fd), (fd))
UNCANCELLED(size_t, fwrite, (const void *data, size_t size, size_t n, FILE *file), (data, size, n, file))
UNCANCELLED(ssize_t, __getdelim, (char **line, size_t *size, int end, FILE *file), (line, size, end, file))
UNCANCELLED(ssize_t, getdelim, (char **line, size_t *size, int end, FILE *file), (line, size, end, file))
UNCANCELLED(ssize_t, getrandom, (void *data, size_t size, unsigned int flags), (data, size, flags))
UNCANCELLED_FD(memfd_create, (const char *name, unsigned int flags), (name, flags | MFD_CLOEXEC))
UNCANCELLED_FD(mkostemp, (char *path, int flags), (path, flags | O_CLOEXEC))
UNCANCELLED(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))
UNCANCELLED(int, poll, (struct pollfd *fds, nfds_t n, int timeout), (fds, n, timeout))
UNCANCELLED(ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
UNCANCELLED(int, pthread_cond_clockwait, (pthread_cond_t *cond, pthread_mutex_t *lock, clockid_t clock, const struct timespec *time), (cond, lock, clock, time))
UNCANCELLED(int, pthread_cond_timedwait, (pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *time), (cond, lock, time))
UNCANCELLED(int, pthread_cond_wait, (pthread_cond_t *cond, pthread_mutex_t *lock), (cond, lock))
UNCANCELLED(int, pthread_join, (pthread_t thread, void **result_of), (thread, result_of))
UNCANCELLED(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
UNCANCELLED(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
UNCANCELLED(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
UNCANCELLED(int, sem_wait, (sem_t *sem), (sem))
UNCANCELLED(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
UNCANCELLED(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags))
UNCANCELLED(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *time), (set, info, time))
UNCANCELLED_FD(socket, (int domain, int type, int protocol), (domain, type | SOCK_CLOEXEC, protocol))
UNCANCELLED(int, usleep, (useconds_t us), (us))
UNCANCELLED(int, vfprintf, (FILE *file, const char *format, va_list list), (file, format, list))
UNCANCELLED(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
UNCANCELLED(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
/* clang-format on */

/* Like libc, without a look at what @command takes: who duplicates a descriptor says from which number on. */
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	int state, result;
	va_list list;

	va_start(list, command);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	result = __real_fcntl(fd, command, va_arg(list, void *));
	pthread_setcancelstate(state, NULL);
	va_end(list);
	return result;
}

int __wrap_fprintf(FILE *file, const char *format, ...);
int __wrap_fprintf(FILE *file, const char *format, ...)
{
	va_list list;
	int result;

	va_start(list, format);
	result = vfprintf(file, format, list);
	va_end(list);
	return result;
}

static bool has_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

int __real_openat(int dir, const char *path, int flags, mode_t mode);

static int open_at(int dir, const char *path, int flags, va_list list)
{
	mode_t mode = has_mode(flags) ? va_arg(list, mode_t) : 0;
	int state, fd;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	do
		fd = above_streams(__real_openat(dir, path, flags | O_CLOEXEC, mode));
	while (fd == LOST && !(flags & O_EXCL));
	pthread_setcancelstate(state, NULL);
	return fd == LOST ? -1 : fd;
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list list;
	int fd;

	va_start(list, flags);
	fd = open_at(AT_FDCWD, path, flags, list);
	va_end(list);
	return fd;
}

int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
	va_list list;
	int fd;

	va_start(list, flags);
	fd = open_at(dir, path, flags, list);
	va_end(list);
	return fd;
}

/* To read ("re"), or to write a new file ("we"). */
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
	int fd = open(path, *mode == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, 0666);
	FILE *file = fd < 0 ? NULL : fdopen(fd, mode);

	if (fd >= 0 && !file)
		close(fd);
	return file;
}

DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !directory)
		close(fd);
	return directory;
}

int __real_pipe2(int fds[2], int flags);
int __wrap_pipe2(int fds[2], int flags);
int __wrap_pipe2(int fds[2], int flags)
{
	int ends[2], error;

	if (__real_pipe2(ends, flags | O_CLOEXEC))
		return -1;
	for (int i = 0; i < 2; i++) {
		ends[i] = above_or_none(ends[i]);
		if (ends[i] >= 0)
			continue;
		error = errno;
		__real_close(ends[!i]);
		errno = error;
		return -1;
	}
	memcpy(fds, ends, sizeof(ends));
	return 0;
}

/* A descriptor for which no number is free is -1, as if it had not come. */
static void move_rights(struct msghdr *msg, struct cmsghdr *cmsg)
{
	size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	int fd;

	for (size_t i = 0; i < n; i++) {
		memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd), sizeof(fd));
		fd = above_or_none(fd);
		memcpy(CMSG_DATA(cmsg) + i * sizeof(fd), &fd, sizeof(fd));
		if (fd < 0)
			msg->msg_flags |= MSG_CTRUNC;
	}
}

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct cmsghdr *cmsg;
	ssize_t n;
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	n = __real_recvmsg(fd, msg, flags | MSG_CMSG_CLOEXEC);
	pthread_setcancelstate(state, NULL);
	for (cmsg = n < 0 ? NULL : CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg))
		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS)
			move_rights(msg, cmsg);
	return n;
}
