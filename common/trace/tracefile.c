/* SPDX-License-Identifier: Apache-2.0 */
#include "common/trace/tracefile.h"
#include "common/system/ownfd.h"
#include "common/system/write_signals.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOG_PREFIX "trace: "
#include "common/log.h"

#define END       "\n]"
#define END_SIZE  2
#define MAX_FILES 1000 /* of one process, which may call exec */
/*
 * A high number, so that a program that closes unknown descriptors does not get it for its next
 * file.
 */
#define HIGH_FD 512

static struct {
	pthread_mutex_t lock;
	bool open; /* written under lock */
	struct ownfd own;
	off_t size; /* of the file; 0 before the first event */
	char path[PATH_MAX];
} file = {.lock = PTHREAD_MUTEX_INITIALIZER, .own = OWNFD_NONE};

bool tracefile_is_open(void)
{
	return __atomic_load_n(&file.open, __ATOMIC_RELAXED);
}

static void close_locked(void)
{
	__atomic_store_n(&file.open, false, __ATOMIC_RELAXED);
	ownfd_close(&file.own);
}

/* A child that uses CUDA has a trace of its own, and writes nothing into this one. */
static void after_fork_child(void)
{
	pthread_mutex_init(&file.lock, NULL);
	close_locked();
}

static int create(const char *path)
{
	int fd, high;

	for (int i = 0; i < MAX_FILES; i++) {
		int len = i == 0   ? snprintf(file.path, PATH_MAX, "%s", path)
			  : i == 1 ? snprintf(file.path, PATH_MAX, "%s.%d", path, getpid())
				   : snprintf(file.path, PATH_MAX, "%s.%d.%d", path, getpid(), i);

		if (len >= PATH_MAX)
			return -ENAMETOOLONG;
		fd = open(file.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0) {
			high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
			if (high < 0)
				return fd;
			close(fd);
			return high;
		}
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

/* By system call: pwrite() is a cancellation point. */
static int write_at(const char *data, size_t len, off_t at)
{
	while (len) {
		ssize_t n = syscall(SYS_pwrite64, file.own.fd, data, len, at);

		if (n < 0)
			return -errno;
		data += n;
		len -= n;
		at += n;
	}
	return 0;
}

/* Give the file its former length and end. */
static void undo(void)
{
	if (!ftruncate(file.own.fd, file.size) && file.size)
		write_at(END, END_SIZE, file.size - END_SIZE);
}

static int append(char *line, size_t len)
{
	static const char spaces[TRACEFILE_PAGE] = {[0 ... TRACEFILE_PAGE - 1] = ' '};
	off_t at = file.size ? file.size - END_SIZE : 0;
	size_t room = TRACEFILE_PAGE - at % TRACEFILE_PAGE;
	int error = 0;

	if (!file.size)
		line[0] = '[';
	memcpy(line + len, END, END_SIZE);
	len += END_SIZE;
	if (len > room) {
		error = write_at(spaces, room, at);
		at += room;
	}
	if (!error)
		error = write_at(line, len, at);
	if (error)
		undo();
	else
		file.size = at + len;
	return error;
}

/* Does nothing if the trace has ended. */
static int append_safely(char *line, size_t len)
{
	int error = 0, saved_errno = errno;
	struct write_signals before;

	write_signals_block(&before);
	pthread_mutex_lock(&file.lock);
	if (ownfd_is_lost(&file.own))
		error = -EBADF;
	else if (ownfd_get(&file.own) >= 0)
		error = append(line, len);
	if (error)
		close_locked();
	pthread_mutex_unlock(&file.lock);
	write_signals_unblock(&before);
	errno = saved_errno;
	return error;
}

/* Other threads see the file as open once its first event is written. */
int tracefile_open(const char *path, char *line, size_t len)
{
	int fd = create(path), error;

	if (fd < 0)
		return fd;
	pthread_atfork(NULL, NULL, after_fork_child);
	ownfd_set(&file.own, fd);
	error = append_safely(line, len);
	if (!error)
		__atomic_store_n(&file.open, true, __ATOMIC_RELEASE);
	return error;
}

void tracefile_append(char *line, size_t len)
{
	int error = append_safely(line, len);

	if (error)
		pr_err("%s: %s; the trace ends here, the program runs on", file.path,
		       error_text(-error));
}
