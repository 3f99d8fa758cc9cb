/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc's cancellation points, for the injected libraries: no call into us is one, since driver calls are
 * none. A thread of the program that is cancelled in the midst of a call of ours would leave locks, files and
 * memory behind, and the next call would wait for a lock for ever.
 *
 * The libraries, and the simulated driver, are linked with --wrap for each name below: their calls of read() come to __wrap_read(),
 * which makes the call with cancellation disabled. A request to cancel stays pending until the thread's next
 * own cancellation point. What the real driver does is left to it. The launch path has no such call.
 *
 * The Makefile takes the names from here, and tests/cli/test_uncancelled.py checks that none is missing.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
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

/* clang-format off */
UNCANCELLED(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags), (fd, addr, len, flags))
UNCANCELLED(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *time, struct timespec *left), (clock, flags, time, left))
UNCANCELLED(int, close, (int fd), (fd))
UNCANCELLED(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
UNCANCELLED(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
UNCANCELLED(int, fclose, (FILE *file), (file))
UNCANCELLED(int, fflush, (FILE *file), (file))
UNCANCELLED(char *, fgets, (char *text, int size, FILE *file), (text, size, file))
UNCANCELLED(FILE *, fopen, (const char *path, const char *mode), (path, mode))
UNCANCELLED(int, fputc, (int c, FILE *file), (c, file))
UNCANCELLED(int, fputs, (const char *text, FILE *file), (text, file))
UNCANCELLED(int, fsync, (int fd), (fd))
UNCANCELLED(size_t, fwrite, (const void *data, size_t size, size_t n, FILE *file), (data, size, n, file))
UNCANCELLED(ssize_t, __getdelim, (char **line, size_t *size, int end, FILE *file), (line, size, end, file))
UNCANCELLED(ssize_t, getdelim, (char **line, size_t *size, int end, FILE *file), (line, size, end, file))
UNCANCELLED(ssize_t, getrandom, (void *data, size_t size, unsigned int flags), (data, size, flags))
UNCANCELLED(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))
UNCANCELLED(int, poll, (struct pollfd *fds, nfds_t n, int ms), (fds, n, ms))
UNCANCELLED(ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
UNCANCELLED(int, pthread_cond_clockwait, (pthread_cond_t *cond, pthread_mutex_t *lock, clockid_t clock, const struct timespec *time), (cond, lock, clock, time))
UNCANCELLED(int, pthread_cond_timedwait, (pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *time), (cond, lock, time))
UNCANCELLED(int, pthread_cond_wait, (pthread_cond_t *cond, pthread_mutex_t *lock), (cond, lock))
UNCANCELLED(int, pthread_join, (pthread_t thread, void **result_of), (thread, result_of))
UNCANCELLED(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
UNCANCELLED(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
UNCANCELLED(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
UNCANCELLED(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags))
UNCANCELLED(int, sem_wait, (sem_t *sem), (sem))
UNCANCELLED(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
UNCANCELLED(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags))
UNCANCELLED(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *time), (set, info, time))
UNCANCELLED(int, usleep, (useconds_t us), (us))
UNCANCELLED(int, vfprintf, (FILE *file, const char *format, va_list list), (file, format, list))
UNCANCELLED(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
UNCANCELLED(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
/* clang-format on */

/* Like libc, without a look at what @command takes. */
int __real_fcntl(int fd, int command, void *arg);
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

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	int state, fd;
	va_list list;

	va_start(list, flags);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	fd = __real_open(path, flags, has_mode(flags) ? va_arg(list, mode_t) : 0);
	pthread_setcancelstate(state, NULL);
	va_end(list);
	return fd;
}

int __real_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
	int state, fd;
	va_list list;

	va_start(list, flags);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	fd = __real_openat(dir, path, flags, has_mode(flags) ? va_arg(list, mode_t) : 0);
	pthread_setcancelstate(state, NULL);
	va_end(list);
	return fd;
}
