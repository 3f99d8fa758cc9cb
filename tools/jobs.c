/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jobs.h"

#include "tools/format.h"
#include "tools/host.h"
#include "tools/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LISTEN_MS 100 /* at most at a time, while there is a limit */

int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000L + ts.tv_nsec / 1000000;
}

const char *job_error_text(int error)
{
	switch (-error) {
	case ETIMEDOUT:
	case EAGAIN:
		return "no answer";
	case EBADMSG:
		return "malformed answer";
	case EPROTONOSUPPORT:
		return "it speaks another version of the protocol than this command";
	case ECONNRESET:
	case EPIPE:
		return "it ended without an answer";
	case ECONNREFUSED:
	case ENOENT:
		return "it has ended";
	case JOB_STOPPED:
		return "stopped";
	default:
		return strerror(-error);
	}
}

bool job_is_stopped(const struct job *job)
{
	pid_t parent;

	return host_process(job->pid, &parent) == 'T';
}

bool job_is_gone(const struct job *job)
{
	return job->error == -ECONNREFUSED || job->error == -ENOENT;
}

/* The number, @max at most, that @name consists of but for @suffix; or -1. */
static long number_of(const char *name, const char *suffix, long max)
{
	char *end;
	long value;

	if (*name < '0' || *name > '9')
		return -1;
	value = strtol(name, &end, 10);
	return strcmp(end, suffix) == 0 && value <= max ? value : -1;
}

static int add_job(struct job_list *list, int dir, uid_t uid, pid_t pid)
{
	struct job *jobs = reallocarray(list->jobs, list->n + 1, sizeof(*jobs));

	if (!jobs)
		return -ENOMEM;
	list->jobs = jobs;
	jobs[list->n++] = (struct job){.pid = pid, .uid = uid, .dir = dir, .fd = -1};
	return 0;
}

/* Add the sockets of the folder @dir, which the list takes over. */
static int add_folder(struct job_list *list, int dir)
{
	int *dirs = reallocarray(list->dirs, list->ndirs + 1, sizeof(*dirs));
	struct dirent *entry;
	struct stat st;
	int err = 0;
	DIR *stream;

	if (!dirs) {
		close(dir);
		return -ENOMEM;
	}
	list->dirs = dirs;
	dirs[list->ndirs++] = dir;
	stream = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!stream || fstat(dir, &st) < 0)
		return -errno;
	while (!err && (entry = readdir(stream))) {
		long pid = number_of(entry->d_name, RUNDIR_SUFFIX, INT_MAX);

		if (pid > 0)
			err = add_job(list, dir, st.st_uid, pid);
	}
	closedir(stream);
	return err;
}

/* Add what is in @path, a folder of @owner. That there is none is no error. */
static int add_path(struct job_list *list, const char *path, uid_t owner)
{
	const char *why;
	int err;
	int dir = rundir_open(path, owner, &why);

	if (dir == -ENOENT)
		return EXIT_DONE;
	if (dir < 0) {
		complain("%s can not be used: %s", path, why);
		return EXIT_FAILED;
	}
	err = add_folder(list, dir);
	if (!err)
		return EXIT_DONE;
	complain("%s: %s", path, strerror(-err));
	return EXIT_FAILED;
}

/* For root: every user's folder. One that is not in order is its owner's trouble, so only said. */
static void add_all_users(struct job_list *list)
{
	DIR *stream = opendir(RUNDIR_TMP);
	struct dirent *entry;

	while (stream && (entry = readdir(stream))) {
		char path[PATH_MAX];
		long uid;

		if (strncmp(entry->d_name, RUNDIR_PREFIX, strlen(RUNDIR_PREFIX)) != 0)
			continue;
		uid = number_of(entry->d_name + strlen(RUNDIR_PREFIX), "", UINT_MAX);
		if (uid < 0)
			continue;
		snprintf(path, sizeof(path), RUNDIR_TMP "/%s", entry->d_name);
		add_path(list, path, uid);
	}
	if (stream)
		closedir(stream);
}

static int by_pid(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

int jobs_find(struct job_list *list)
{
	const char *dir = getenv("CUDAW_RUNTIME_DIR");
	uid_t owner = geteuid() == 0 ? RUNDIR_ANYONE : geteuid();
	char path[PATH_MAX];
	const char *why;
	int err = EXIT_DONE;

	*list = (struct job_list){0};
	if (geteuid() == 0 && !(dir && *dir)) {
		add_all_users(list);
	} else if (rundir_path(geteuid(), path, sizeof(path), &why)) {
		complain("%s can not be used: %s", path, why);
		err = EXIT_FAILED;
	} else {
		err = add_path(list, path, owner);
	}
	if (err)
		jobs_free(list);
	else if (list->n)
		qsort(list->jobs, list->n, sizeof(*list->jobs), by_pid);
	return err;
}

void jobs_free(struct job_list *list)
{
	for (size_t i = 0; i < list->ndirs; i++)
		close(list->dirs[i]);
	free(list->dirs);
	free(list->jobs);
	*list = (struct job_list){0};
}

static void hang_up(struct job *job, int error)
{
	if (job->fd >= 0)
		close(job->fd);
	job->fd = -1;
	job->error = error;
}

/* Remove the socket of a process that is no more. */
static void clean_up(const struct job *job)
{
	char name[32];

	if (job->error != -ECONNREFUSED || kill(job->pid, 0) == 0 || errno != ESRCH)
		return;
	snprintf(name, sizeof(name), "%d" RUNDIR_SUFFIX, job->pid);
	unlinkat(job->dir, name, 0);
}

void job_say(struct job *job, const char *fmt, ...)
{
	char text[PROTOCOL_LINE];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	if (len >= (int)sizeof(text) - 1) {
		hang_up(job, -ENAMETOOLONG);
		return;
	}
	text[len++] = '\n';
	/* The socket has room for the few short lines of a conversation. */
	if (job->fd >= 0 && send(job->fd, text, len, MSG_NOSIGNAL) != len)
		hang_up(job, errno == EPIPE ? -ECONNRESET : -EIO);
}

static void call(struct job *job, const struct job_request *request)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int fd = rundir_connect(job->dir, job->pid);

	job->fd = fd < 0 ? -1 : fd;
	job->error = fd < 0 ? fd : 0;
	job->len = 0;
	job->end[0] = job->message[0] = job->note[0] = '\0';
	job->progress = (struct job_progress){0};
	job->heard = 0;
	job->ready = false;
	if (fd < 0) {
		clean_up(job);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
		job->uid = peer.uid;
		job->peer = peer.pid ? peer.pid : -1;
	}
	job_say(job, "%s", job->party && request->party_text ? request->party_text : request->text);
}

static void take_end(struct job *job, char *value)
{
	size_t len = strcspn(value, " ");
	const char *message = value[len] ? value + len + 1 : "";

	value[len] = '\0';
	format_copy(job->end, sizeof(job->end), value);
	format_copy(job->message, sizeof(job->message), message);
	hang_up(job, len ? 0 : -EBADMSG);
}

static void take_line(struct job *job, char *line, const struct job_request *request)
{
	size_t len = strcspn(line, " ");
	char *value = line[len] ? line + len + 1 : line + len;
	int ret;

	if (len == 0) {
		hang_up(job, -EBADMSG);
		return;
	}
	line[len] = '\0';
	if (!strcmp(line, "end")) {
		take_end(job, value);
		return;
	}
	ret = request->line(job, line, value);
	if (ret)
		hang_up(job, ret < 0 ? ret : 0);
}

/* Read what is there after @listened milliseconds, and take the lines that are whole. */
static void hear(struct job *job, const struct job_request *request, int64_t listened)
{
	ssize_t got = recv(job->fd, job->line + job->len, sizeof(job->line) - job->len, 0);
	char *start = job->line, *newline;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		hang_up(job, -ECONNRESET);
		return;
	}
	job->heard = listened;
	job->len += got;
	while (job->fd >= 0 && (newline = memchr(start, '\n', job->line + job->len - start))) {
		*newline = '\0';
		if (memchr(start, '\0', newline - start))
			hang_up(job, -EBADMSG);
		else
			take_line(job, start, request);
		start = newline + 1;
	}
	job->len -= start - job->line;
	memmove(job->line, start, job->len);
	if (job->fd >= 0 && job->len == sizeof(job->line))
		hang_up(job, -EBADMSG);
}

/*
 * Hang up on jobs past their limit; return how long to listen to the others, @wait at the most, -1
 * for ever.
 */
static int check_limits(struct job **jobs, size_t n, const struct job_request *request,
			int64_t listened, int wait)
{
	if (request->limit_ms >= 0 && (wait < 0 || wait > LISTEN_MS))
		wait = LISTEN_MS;
	for (size_t i = 0; i < n && request->limit_ms >= 0; i++) {
		int64_t begin = request->silence ? jobs[i]->heard : 0;
		int64_t left = begin + request->limit_ms - listened;

		if (jobs[i]->fd < 0)
			continue;
		if (left <= 0)
			hang_up(jobs[i], -ETIMEDOUT);
		else if (left < wait)
			wait = left;
	}
	return wait;
}

void jobs_ask(struct job **jobs, size_t n, const struct job_request *request)
{
	struct pollfd *fds = calloc(n ? n : 1, sizeof(*fds));
	int64_t listened = 0, last = now_ms();
	int tick_ms = request->tick ? 0 : -1;

	for (size_t i = 0; i < n; i++) {
		if (fds)
			call(jobs[i], request);
		else
			hang_up(jobs[i], -ENOMEM);
	}
	while (fds) {
		int wait = check_limits(jobs, n, request, listened, tick_ms);
		size_t open = 0;
		int64_t now;

		for (size_t i = 0; i < n; i++) {
			open += jobs[i]->fd >= 0;
			fds[i] = (struct pollfd){.fd = jobs[i]->fd, .events = POLLIN};
		}
		if (!open)
			break;
		poll(fds, n, wait);
		now = now_ms();
		listened += now - last < LISTEN_MS ? now - last : LISTEN_MS;
		last = now;
		for (size_t i = 0; i < n; i++)
			if (jobs[i]->fd >= 0 && fds[i].revents)
				hear(jobs[i], request, listened);
		if (request->tick)
			tick_ms = request->tick(jobs, n);
	}
	free(fds);
}
