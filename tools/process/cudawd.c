/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/cudawd.h"
#include "common/patience.h"
#include "common/conf_file.h"
#include "common/protocol/daemon.h"
#include "common/protocol/lines.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "tools/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS  3000 /* for a daemon that was started to answer */
#define RETRY_US  10000
#define LOG_NAME  "cudawd.log" /* in the runtime directory */
#define LOG_OLD   "cudawd.log.1"
#define LOG_BYTES (1 << 20)
#define FILE_MODE 0600

/* Open the runtime directory. Returns a descriptor or a negative errno, with *@why set. */
static int open_rundir(char path[PATH_MAX], const char **why)
{
	int err = rundir_path(geteuid(), path, PATH_MAX, why);

	return err ? err : rundir_create(path, geteuid(), why);
}

/* The path of the socket that @which means, for messages. */
static void say_where(const char *which, char where[PATH_MAX])
{
	const char *why;

	if (!strcmp(which, "user") && !rundir_path(geteuid(), where, PATH_MAX, &why) &&
	    strlen(where) + sizeof("/" DAEMON_NAME) <= PATH_MAX)
		strcat(where, "/" DAEMON_NAME);
	else
		snprintf(where, PATH_MAX, "%s", strcmp(which, "node") ? which : DAEMON_NODE);
}

/* Wait until @fd can be read. Returns 0 or a negative errno. */
static int wait_for(int fd, double limit_ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	struct patience patience = {0};
	int ready = patience_poll(&patience, &poll_fd, 1, limit_ms);

	if (ready < 0)
		return -errno;
	return ready ? 0 : -ETIMEDOUT;
}

static int error_of(enum end_code end)
{
	static const int errors[ENDS] = {[END_INVALID] = -ENOENT,
					 [END_BUSY] = -EBUSY,
					 [END_DENIED] = -EACCES,
					 [END_TIMEOUT] = -ETIME};

	if (end == END_OK)
		return 0;
	return errors[end] ? errors[end] : -EPROTO;
}

/* The lines that have come. -EAGAIN: the answer goes on. */
static int take_lines(struct lines *lines, cudawd_line take, void *arg)
{
	struct line line;
	char *text;
	int ret;

	while (!(ret = lines_next(lines, &text)) && text) {
		if (line_parse(&lines_from_daemon, text, &line))
			return -EPROTO;
		if (line.id == LISTED_END)
			return error_of(line.end);
		ret = take ? take(arg, &line) : 0;
		if (ret)
			return ret;
	}
	return ret ? -EPROTO : -EAGAIN;
}

int cudawd_hear(int fd, struct lines *lines, cudawd_line take, void *arg)
{
	int ret = lines_read(lines, fd, NULL);

	if (ret < 0)
		return ret == -ECONNRESET ? -ECONNREFUSED : ret;
	return take_lines(lines, take, arg);
}

static int hear_all(int fd, double limit_ms, cudawd_line take, void *arg)
{
	struct lines lines = {0};
	int ret = -EAGAIN;

	while (ret == -EAGAIN) {
		ret = wait_for(fd, limit_ms);
		if (!ret)
			ret = cudawd_hear(fd, &lines, take, arg);
	}
	return ret;
}

/* If the daemon has turned us away, its answer is there all the same. */
static int say(int fd, const char *request)
{
	char text[PROTOCOL_LINE];
	int len = snprintf(text, sizeof(text), "%s\n", request);

	if (len >= (int)sizeof(text))
		return -ENAMETOOLONG;
	send(fd, text, len, MSG_NOSIGNAL);
	return 0;
}

/* Connect to the daemon that @which means, and send @request. Returns a descriptor or a negative errno. */
static int open_to(const char *which, const char *request)
{
	const char *why;
	int fd = daemon_connect(which, &why), err;

	if (fd < 0)
		return fd == -ENOENT ? -ECONNREFUSED : fd;
	err = say(fd, request);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int cudawd_open(const char *request, char where[PATH_MAX])
{
	const char *which = conf_file_daemon();

	which = which ? which : "user";
	say_where(which, where);
	return open_to(which, request);
}

static int hear_and_close(int fd, double limit_ms, cudawd_line line, void *arg)
{
	int ret;

	if (fd < 0)
		return fd;
	ret = hear_all(fd, limit_ms, line, arg);
	close(fd);
	return ret;
}

int cudawd_ask(const char *request, double limit_ms, cudawd_line line, void *arg,
	       char where[PATH_MAX])
{
	return hear_and_close(cudawd_open(request, where), limit_ms, line, arg);
}

const char *cudawd_starter(void)
{
	const char *which = conf_file_daemon();

	if (!which || !strcmp(which, "user"))
		return "'cudaw run --turns' starts it";
	return strcmp(which, "node") ? "'cudawd --socket' with this path starts it"
				     : "root starts it: 'cudawd --socket " DAEMON_NODE "'";
}

/* @reason may be empty. */
static void say_missing(char text[CUDAWD_WHY], const char *where, const char *reason)
{
	snprintf(text, CUDAWD_WHY, "%s: no cudawd answers%s%s%s; %s", where, *reason ? " (" : "",
		 reason, *reason ? ")" : "", cudawd_starter());
}

int cudawd_explain(int err, const char *where)
{
	char missing[CUDAWD_WHY];

	switch (-err) {
	case ECONNREFUSED:
		say_missing(missing, where, "");
		complain("%s", missing);
		return EXIT_FAILED;
	case ETIMEDOUT:
	case ETIME:
		complain("%s: no answer", where);
		return EXIT_TIMEOUT;
	case EACCES:
		complain("%s: it belongs to another user", where);
		return EXIT_DENIED;
	case EBUSY:
		complain("%s: you or others have too many connections to this cudawd; try later",
			 where);
		return EXIT_FAILED;
	case EPROTO:
	case ENOENT:
		complain("%s: this cudawd is of another version than this command", where);
		return EXIT_FAILED;
	default:
		complain("%s: %s", where, strerror(-err));
		return EXIT_FAILED;
	}
}

bool cudawd_is_missing(char why[CUDAWD_WHY])
{
	const char *which = conf_file_daemon(), *reason;
	char where[PATH_MAX];
	int fd;

	if (!which)
		return false;
	fd = daemon_connect(which, &reason);
	if (fd >= 0) {
		close(fd);
		return false;
	}
	say_where(which, where);
	say_missing(why, where, reason);
	return true;
}

/* The program, beside this one. */
static int find_program(char path[PATH_MAX])
{
	char exe[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (len < 0)
		return -errno;
	exe[len] = '\0';
	return snprintf(path, PATH_MAX, "%s/" CUDAWD_PROGRAM, dirname(exe)) >= PATH_MAX
		       ? -ENAMETOOLONG
		       : 0;
}

/* If the log of earlier daemons is long, it gets another name, as a journal does. */
static int open_log(int dir)
{
	struct stat st;

	if (!fstatat(dir, LOG_NAME, &st, AT_SYMLINK_NOFOLLOW) && st.st_size >= LOG_BYTES)
		renameat(dir, LOG_NAME, dir, LOG_OLD);
	return openat(dir, LOG_NAME, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
		      FILE_MODE);
}

/*
 * In the grandchild: become the daemon, which has nothing of ours: neither descriptors nor session,
 * directory, signal mask or job. What it says goes to a file.
 */
static void become_daemon(const char *program, int dir)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int out = open_log(dir);
	sigset_t none;

	if (null < 0 || chdir("/"))
		_exit(1);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(out < 0 ? null : out, STDERR_FILENO);
	closefrom(STDERR_FILENO + 1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	unsetenv(settings[SETTING_JOB].name);
	execl(program, CUDAWD_PROGRAM, "--user", (char *)NULL);
	_exit(1);
}

static int start(const char *program, int dir)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		setsid();
		if (fork() == 0)
			become_daemon(program, dir);
		_exit(0);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static int say_launch(void)
{
	return hear_and_close(open_to("user", "launch"), CUDAWD_MS, NULL, NULL);
}

int cudawd_launch(const char **why)
{
	char path[PATH_MAX], program[PATH_MAX];
	int dir = open_rundir(path, why), err;
	struct patience patience = {0};

	if (dir < 0)
		return dir;
	err = say_launch();
	if (err == -ECONNREFUSED) {
		err = find_program(program);
		if (!err && access(program, X_OK))
			err = -errno;
		if (!err)
			err = start(program, dir);
		while (!err && (err = say_launch()) == -ECONNREFUSED &&
		       patience_ms(&patience) < START_MS) {
			usleep(RETRY_US);
			err = 0;
		}
	}
	close(dir);
	*why = err == -ECONNREFUSED ? "it does not answer; see " LOG_NAME
				      " in the runtime directory"
				    : strerror(-err);
	return err;
}
