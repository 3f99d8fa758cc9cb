/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"
#include "common/system/ownfd.h"
#include "common/system/write_signals.h"
#include "common/settings.h"
#include "common/text.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum log_level max_level = LOG_ERROR;
static bool silent; /* no notices */
static struct ownfd file = OWNFD_NONE;
static char path[PATH_MAX]; /* of it, as the program may change its environment; "": stderr */

static pthread_once_t seen = PTHREAD_ONCE_INIT;
static struct ownfd error_stream = OWNFD_NONE; /* the standard error as we found it */

/* With FD_CLOEXEC it is no standard error: the program has opened it. */
static void see_stderr(void)
{
	int flags = fcntl(STDERR_FILENO, F_GETFD);

	ownfd_set(&error_stream, flags & FD_CLOEXEC ? -1 : STDERR_FILENO);
}

void log_see_stderr(void)
{
	pthread_once(&seen, see_stderr);
}

/* Nobody may read a pipe. */
static void open_file(void)
{
	ownfd_set(&file, open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600));
}

static void setup(void)
{
	log_see_stderr();
	/* Not setting_word(), which logs a word that it does not know. */
	const char *level = setting_text(SETTING_LOG), *name;

	for (int i = LOG_ERROR; level && i <= LOG_DEBUG; i++)
		if (!strcmp(level, level_names[i]))
			max_level = i;
	name = setting_text(SETTING_NOTICES);
	silent = name && !strcmp(name, "0");
	name = setting_text(SETTING_LOG_FILE);
	if (!name || strlen(name) >= sizeof(path))
		return;
	strcpy(path, name);
	open_file();
	if (file.fd < 0)
		path[0] = '\0';
}

void log_restored(void)
{
	ownfd_take_restored(&error_stream);
	if (*path && ownfd_is_lost(&file))
		open_file();
}

int log_enabled(enum log_level level)
{
	pthread_once(&once, setup);
	return level <= max_level;
}

/*
 * STDERR_FILENO; -1: a program that has closed it may have its data there, a file or a socket. Nothing tells that
 * from a new standard error, so that our lines go there only if it is a terminal, or the standard output as well.
 */
static int find_stderr(void)
{
	struct stat error, output;
	int fd = ownfd_get(&error_stream);

	if (fd >= 0 || isatty(STDERR_FILENO))
		return STDERR_FILENO;
	return !fstat(STDERR_FILENO, &error) && !fstat(STDOUT_FILENO, &output) &&
			       error.st_dev == output.st_dev && error.st_ino == output.st_ino
		       ? STDERR_FILENO
		       : -1;
}

/* A pipe that nobody reads, or a terminal that is stopped, must not stop the calling thread. */
static bool takes_a_line(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};

	/* poll() and write() are cancellation points. */
#ifdef SYS_poll
	return syscall(SYS_poll, &pfd, 1, 0) == 1 && pfd.revents & POLLOUT;
#else
	return syscall(SYS_ppoll, &pfd, 1, &(struct timespec){0}, NULL, 0) == 1 &&
	       pfd.revents & POLLOUT;
#endif
}

/* A line of @label and what follows. */
static void write_line(const char *label, const char *fmt, va_list ap)
{
	char line[1024], when[FORMAT_SIZE];
	struct write_signals before;
	struct timespec now;
	int fd, len;

	clock_gettime(CLOCK_REALTIME, &now);
	format_utc(when, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
	len = snprintf(line, sizeof(line), "cudaw[%d] %s%s: ", getpid(), when, label);
	len += vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	fd = *path ? ownfd_get(&file) : find_stderr();
	/* One write(2), so that lines of several processes do not mix in one file. Failures cannot be reported. */
	if (fd < 0 || !takes_a_line(fd))
		return;
	write_signals_block(&before);
	syscall(SYS_write, fd, line, len);
	write_signals_unblock(&before);
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	char label[16];
	va_list ap;

	if (!log_enabled(level))
		return;
	snprintf(label, sizeof(label), " %s", level_names[level]);
	va_start(ap, fmt);
	write_line(label, fmt, ap);
	va_end(ap);
}

void log_notice(const char *fmt, ...)
{
	va_list ap;

	log_enabled(LOG_ERROR); /* reads the settings */
	if (silent)
		return;
	va_start(ap, fmt);
	write_line("", fmt, ap);
	va_end(ap);
}
