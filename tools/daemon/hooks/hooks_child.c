/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/hooks/hooks_child.h"
#include "common/clock.h"
#include "common/text.h"
#include "tools/daemon/hooks/hooks.h"
#include "tools/daemon/hooks/seldom.h"
#include "tools/job/journals.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <math.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_PREFIX "hooks: "
#include "common/log.h"

#define BLIND_MS  1000 /* where a directory cannot be watched */
#define NOT_BEGUN 127  /* the exit status, as the shell has it */
#define CHANNEL   STDIN_FILENO

static const struct conf_hooks *conf;

static struct running {
	pid_t pid;     /* 0: none */
	double end_ms; /* clock_ms(): it is killed then */
	bool killed;
	char kind[16];
	int why; /* a pipe from which the errno comes if it could not begin */
} running[HOOKS_AT_ONCE];

static struct hook_event waiting[HOOKS_WAIT]; /* the oldest first */
static size_t nwaiting;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *fmt, ...)
{
	static struct seldom seldom;
	char text[512];
	va_list ap;

	if (!seldom_may(&seldom, clock_ms()))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (seldom.unsaid)
		pr_err("%s (and %u messages before it)", text, seldom.unsaid);
	else
		pr_err("%s", text);
	seldom.unsaid = 0;
}

static const char *program_of(const char *kind)
{
	int event = conf_event(kind);

	return event >= 0 ? conf->programs[event] : "";
}

static size_t waiting_of(uid_t uid)
{
	size_t n = 0;

	for (size_t i = 0; i < nwaiting; i++)
		n += waiting[i].uid == uid;
	return n;
}

static void queue(const struct hook_event *event)
{
	if (!*program_of(event->kind))
		return;
	if (nwaiting < HOOKS_WAIT && waiting_of(event->uid) < HOOKS_USER)
		waiting[nwaiting++] = *event;
	else
		say("on_%s: too many events wait, the one of process %d of user %u is dropped",
		    event->kind, event->pid, event->uid);
}

/* ---- in the process of the program */

static char *variable(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static char *variable(const char *name, const char *fmt, ...)
{
	char value[2048], *text;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	return asprintf(&text, "CUDAW_EVENT%s=%s", name, value) < 0 ? NULL : text;
}

static char **environment_of(const struct hook_event *e)
{
	static char *env[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", [14] = NULL};
	int n = 1;

	env[n++] = variable("", "%s", e->kind);
	env[n++] = variable("_UNIX_MS", "%" PRIu64, e->unix_ms);
	env[n++] = variable("_PID", "%d", e->pid);
	env[n++] = variable("_UID", "%u", e->uid);
	env[n++] = variable("_ID", "%s", e->id);
	env[n++] = variable("_NAME", "%s", e->name);
	env[n++] = variable("_TEXT", "%s", e->text);
	env[n++] = variable("_OPERATION", "%s", e->operation);
	env[n++] = variable("_BYTES", "%" PRIu64, e->bytes);
	if (e->asked) {
		env[n++] = variable("_BY_UID", "%u", e->by.uid);
		env[n++] = variable("_BY_PID", "%d", e->by.pid);
		env[n++] = variable("_BY_COMMAND", "%s", e->by.command);
	}
	return env;
}

/* Returns 0 or a negative errno. */
static int become_user(void)
{
	const struct passwd *pw;

	if (geteuid() != 0)
		return 0;
	errno = 0;
	pw = getpwuid(conf->uid);
	if (!pw)
		return errno ? -errno : -ENOENT;
	if (initgroups(pw->pw_name, pw->pw_gid) || setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) ||
	    setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid))
		return -errno;
	return 0;
}

/* @why stays, and is closed by the program's begin. Returns 0 or a negative errno. */
static int let_go_of_all(int *why)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	if (null < 0 || chdir("/"))
		return -errno;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	if (*why != STDERR_FILENO + 1 && dup3(*why, STDERR_FILENO + 1, O_CLOEXEC) < 0)
		return -errno;
	*why = STDERR_FILENO + 1;
	closefrom(STDERR_FILENO + 2);
	umask(022);
	sigemptyset(&none);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return 0;
}

static void become_program(const struct hook_event *event, int why) __attribute__((noreturn));

static void become_program(const struct hook_event *event, int why)
{
	const char *program = program_of(event->kind);
	char *argv[] = {(char *)program, (char *)event->kind, NULL}, **env;
	int err;

	setsid();
	env = environment_of(event);
	err = become_user();
	if (!err)
		err = let_go_of_all(&why);
	if (!err) {
		execve(program, argv, env);
		err = -errno;
	}
	if (write(why, &err, sizeof(err)) < 0)
		_exit(NOT_BEGUN - 1);
	_exit(NOT_BEGUN);
}

/* ---- and in ours */

static void begin(struct running *r, const struct hook_event *event)
{
	int why[2];

	if (pipe2(why, O_CLOEXEC)) {
		say("on_%s: %s", event->kind, strerror(errno));
		return;
	}
	r->pid = fork();
	if (r->pid == 0)
		become_program(event, why[1]);
	close(why[1]);
	if (r->pid < 0) {
		say("on_%s: %s", event->kind, strerror(errno));
		close(why[0]);
		r->pid = 0;
		return;
	}
	r->why = why[0];
	r->killed = false;
	r->end_ms = clock_ms() + conf->limit_ms;
	memcpy(r->kind, event->kind, sizeof(r->kind));
}

static void begin_waiting(void)
{
	size_t begun = 0;

	for (int i = 0; i < HOOKS_AT_ONCE && begun < nwaiting; i++)
		if (!running[i].pid)
			begin(&running[i], &waiting[begun++]);
	nwaiting -= begun;
	memmove(waiting, waiting + begun, nwaiting * sizeof(waiting[0]));
}

static void judge(const struct running *r, int status)
{
	const char *program = program_of(r->kind);
	char limit[FORMAT_SIZE];
	int err = 0;

	if (read(r->why, &err, sizeof(err)) == sizeof(err))
		say("on_%s: %s: it cannot be run: %s", r->kind, program, strerror(-err));
	else if (r->killed)
		say("on_%s: %s: it has not ended in %s, and was killed", r->kind, program,
		    format_seconds(limit, conf->limit_ms));
	else if (WIFSIGNALED(status))
		say("on_%s: %s: ended by signal %d", r->kind, program, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		say("on_%s: %s: ended with status %d", r->kind, program, WEXITSTATUS(status));
}

/* What a program leaves in its process group ends with it. While it is a zombie, nobody else has its number. */
static void reap(void)
{
	siginfo_t info = {0};

	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
		int status = 0;

		kill(-info.si_pid, SIGKILL);
		waitpid(info.si_pid, &status, 0);
		for (int i = 0; i < HOOKS_AT_ONCE; i++) {
			if (running[i].pid != info.si_pid)
				continue;
			judge(&running[i], status);
			close(running[i].why);
			running[i].pid = 0;
		}
		info.si_pid = 0;
	}
}

static void kill_late(void)
{
	for (int i = 0; i < HOOKS_AT_ONCE; i++) {
		struct running *r = &running[i];

		if (!r->pid || r->killed || clock_ms() < r->end_ms)
			continue;
		r->killed = true;
		kill(-r->pid, SIGKILL);
		kill(r->pid, SIGKILL); /* it may not have a group yet */
	}
}

static double patience_ms(const struct journals *journals)
{
	double ms = journals_are_watched(journals) ? INFINITY : BLIND_MS;

	for (int i = 0; i < HOOKS_AT_ONCE; i++)
		if (running[i].pid && !running[i].killed && running[i].end_ms - clock_ms() < ms)
			ms = running[i].end_ms - clock_ms();
	return ms > 0 ? ms : 0;
}

static bool any_runs(void)
{
	for (int i = 0; i < HOOKS_AT_ONCE; i++)
		if (running[i].pid)
			return true;
	return false;
}

static void take_seen(void *arg, const struct journal_seen *seen)
{
	struct hook_event e = {.unix_ms = seen->unix_ms,
			       .bytes = seen->bytes,
			       .pid = seen->pid,
			       .uid = seen->uid,
			       .asked = seen->asked,
			       .by = {.uid = seen->by_uid, .pid = seen->by_pid}};

	if (*(bool *)arg)
		return;
	snprintf(e.kind, sizeof(e.kind), "%s", journal_words[seen->kind]);
	snprintf(e.id, sizeof(e.id), "%s", seen->id);
	snprintf(e.name, sizeof(e.name), "%s", seen->name);
	snprintf(e.operation, sizeof(e.operation), "%s", seen->operation);
	snprintf(e.text, sizeof(e.text), "%s", seen->text);
	snprintf(e.by.command, sizeof(e.by.command), "%s", seen->by_command);
	queue(&e);
}

/* False: the daemon has ended, or has other settings. */
static bool hear_daemon(void)
{
	struct hook_event event;
	ssize_t len;

	while ((len = recv(CHANNEL, &event, sizeof(event), MSG_DONTWAIT)) == sizeof(event))
		queue(&event);
	return len < 0 && (errno == EAGAIN || errno == EINTR);
}

static void look_at_journals(struct journals *journals, bool past)
{
	const char *why;

	journals_add_all(journals, &why);
	journals_read(journals, take_seen, &past);
}

static void serve(int ends)
{
	struct journals journals;
	struct pollfd fds[3];
	bool open = true;

	journals_init(&journals, true);
	look_at_journals(&journals, true);
	while (open || any_runs() || nwaiting) {
		struct signalfd_siginfo info;

		fds[0] = (struct pollfd){.fd = ends, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = open ? CHANNEL : -1, .events = POLLIN};
		fds[2] = (struct pollfd){.fd = open ? journals.inotify : -1, .events = POLLIN};
		poll(fds, 3, clock_poll(patience_ms(&journals)));
		while (read(ends, &info, sizeof(info)) > 0)
			;
		reap();
		kill_late();
		if (fds[1].revents)
			open = hear_daemon();
		if (open && (!fds[2].revents || journals_drain(&journals)))
			look_at_journals(&journals, false);
		begin_waiting();
	}
}

void hooks_child_main(int channel, const struct conf_hooks *hooks)
{
	sigset_t child;
	int ends;

	conf = hooks;
	signal(SIGCHLD, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	/* The daemon's, which tells us by closing the channel. */
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_SETMASK, &child, NULL);
	if (dup2(channel, CHANNEL) < 0)
		_exit(1);
	closefrom(STDERR_FILENO + 1);
	ends = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (ends < 0)
		_exit(1);
	serve(ends);
	_exit(0);
}
