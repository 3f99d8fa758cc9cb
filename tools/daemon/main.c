/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudawd: lets jobs take turns on GPUs that cannot hold them all.
 *
 * One thread waits in poll(2). Members and commands connect (connections.c), their lines are parsed
 * (lines.c) and taken (members.c, commands.c), and the books and their policy decide (turns.h). A
 * child process asks NVML (sampler.c).
 *
 * Nothing depends on the daemon: if it ends, each member has its lease again.
 */
#include "common/clock.h"
#include "common/patience.h"
#include "common/protocol/daemon.h"
#include "common/version.h"
#include "tools/daemon/commands.h"
#include "tools/daemon/members.h"
#include "tools/daemon/connections.h"
#include "tools/daemon/gpus.h"
#include "tools/daemon/hooks/hooks.h"
#include "tools/daemon/now.h"
#include "tools/daemon/rules.h"
#include "tools/daemon/sampler.h"
#include "tools/daemon/socket.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"Usage: cudawd [OPTION]...\n"
	"\n"
	"Let jobs take turns on GPUs that cannot hold them all. 'cudaw run --turns' starts it for\n"
	"the user's jobs. It listens on a socket from systemd, or else as the options say.\n"
	"\n"
	"      --user             listen on cudawd.sock in the runtime directory, for this user, and\n"
	"                         end after the last job (the default)\n"
	"      --socket PATH      listen on PATH; if root runs it, for all users\n"
	"      --conf FILE        read settings from FILE, not from cudaw.conf in /etc or ~/.config\n"
	"      --quantum SECONDS  the length of a turn; by default 20 times a hand-over, at least 10,\n"
	"                         at most 120 (a hand-over: one job gives memory, the next gets it)\n"
	"      --idle SECONDS     a job that makes no GPU call for so long is idle; by default at most\n"
	"                         5: by the time of its hand-overs, and its last pauses\n"
	"      --rest SECONDS     the longest time that kernels have to end when a turn does (16).\n"
	"                         They have 2 at first; if that was too short, next time twice that\n"
	"      --rescue SECONDS   if Slurm stops a job before it has given its memory, continue it\n"
	"                         after this time, so that it gives the memory; or never (0.02)\n"
	"      --context-after SECONDS  a job gives its CUDA context, too, if another one has waited\n"
	"                         for it for so long; jobs may set their own time; or never (never)\n"
	"      --linger SECONDS   with --user, the time from the last job to the end (5)\n"
	"      --margin BYTES     memory of each GPU that no job gets (256M)\n"
	"      --jobs-per-user N  the most connections of a user's jobs, of a daemon for all users\n"
	"                         (32)\n"
	"  -h, --help             this text\n"
	"  -V, --version          the version\n"
	"\n"
	"Options override the file of settings. After SIGHUP the daemon reads the file again. 'man\n"
	"cudawd' has the file's keys.\n"
	"\n"
	"Exit codes: 0 ended by a signal, or after the last job; 1 failed; 2 wrong usage.\n";

enum { EXIT_USAGE = 2 };

struct options {
	const char *path; /* of the socket; NULL: the default */
	const char *conf; /* the file of settings; NULL: the default */
	struct conf_values values;
};

static volatile sig_atomic_t stop, reread;

static void on_signal(int sig)
{
	if (sig == SIGHUP)
		reread = 1;
	else
		stop = 1;
}

static void take_line(struct connection *connection, char *text)
{
	double now = now_ms();
	struct line line;
	bool good = !line_parse(&lines_to_daemon, text, &line);

	if (good && (connection->member || line.id == MEMBER_TURNS))
		good = members_take(connection, &line, now);
	else if (good)
		good = commands_take(connection, &line, now);
	if (good)
		return;
	connection_answer(connection, END_INVALID, "not expected here: %.200s", text);
}

static void wait_for_connections(double patience_ms)
{
	static struct pollfd fds[CONNECTIONS_POLL + 2];
	double slice_ms = patience_ms < PATIENCE_SLICE_MS ? patience_ms : PATIENCE_SLICE_MS;
	struct timespec slice = {.tv_nsec = (long)(slice_ms * 1e6)};
	int count = connections_poll(fds), ready;
	sigset_t none;
	double now;

	fds[count] = (struct pollfd){.fd = sampler_fd(), .events = POLLIN};
	fds[count + 1] = (struct pollfd){.fd = hooks_fd(), .events = POLLIN};
	sigemptyset(&none);
	ready = ppoll(fds, count + 2, patience_ms < 0 ? NULL : &slice, &none);
	if (patience_ms < 0)
		now_waited();
	now = now_ms();
	if (now_has_stood())
		gpus_sample_anew(now);
	if (ready >= 0)
		connections_handle(fds, count, now);
}

static void read_rules_again(void)
{
	reread = 0;
	rules_reread();
}

#define LOOK_MS 1000 /* between looks at the socket; a new daemon waits longer for the lock */

/* False: another daemon is found in the place of this one. @left_ms: until it is to be called again. */
static bool keep_socket(struct daemon_socket *opened, double now, double *left_ms)
{
	static bool kept = true;
	static double looked_ms;

	if (now - looked_ms >= LOOK_MS) {
		looked_ms = now;
		kept = socket_look(opened);
		connections_listen(opened->fd);
	}
	*left_ms = looked_ms + LOOK_MS - now;
	return kept;
}

/* Until a signal comes, or, for a daemon of a user, nobody needs it for CONF_LINGER, or nobody finds it. */
static void serve(struct daemon_socket *opened)
{
	bool needed = true; /* until the wait that has just ended */
	double needed_ms = 0;

	while (!stop) {
		double now = now_ms(), linger = rules_value(CONF_LINGER), patience, look_ms;

		if (reread)
			read_rules_again();
		members_decide(now);
		commands_follow();
		hooks_look();
		if (needed)
			needed_ms = now;
		if (opened->users_own && now - needed_ms >= linger)
			return;
		needed = connections_next(NULL);
		patience = clock_shorter(members_patience(now), connections_patience(now));
		patience = clock_shorter(patience, hooks_patience(now));
		if (opened->users_own) {
			if (!keep_socket(opened, now, &look_ms) && !needed)
				return;
			patience = clock_shorter(patience, look_ms);
		}
		if (opened->users_own && !needed)
			patience = clock_shorter(patience, needed_ms + linger - now);
		wait_for_connections(patience);
	}
}

/* Of options with a key of conf.h, getopt_long(3) returns the key plus this. */
#define FIRST_KEY 256

static bool take_key(struct options *options, enum conf_key key, const char *text)
{
	if (conf_take(&options->values, key, text))
		return true;
	fprintf(stderr, "cudawd: --%s %s: expected %s\n", conf_names[key], text,
		conf_expected(key));
	return false;
}

/* Returns -1, or an exit code. */
static int parse(int argc, char **argv, struct options *options)
{
	struct option names[CONF_OPTIONS + 6] = {
		[CONF_OPTIONS] = {"user", no_argument, NULL, 'u'},
		{"socket", required_argument, NULL, 'S'},
		{"conf", required_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
	};
	bool good = true;
	int opt;

	for (int i = 0; i < CONF_OPTIONS; i++)
		names[i] = (struct option){conf_names[i], required_argument, NULL, FIRST_KEY + i};
	while (good && (opt = getopt_long(argc, argv, "hV", names, NULL)) != -1) {
		switch (opt) {
		case 'u':
			options->path = NULL;
			break;
		case 'S':
			options->path = optarg;
			break;
		case 'c':
			options->conf = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		case 'V':
			printf("cudawd %s\n", cudaw_version);
			return EXIT_SUCCESS;
		default:
			good = opt >= FIRST_KEY && take_key(options, opt - FIRST_KEY, optarg);
		}
	}
	if (good && optind == argc)
		return -1;
	if (good)
		fprintf(stderr, "cudawd: no argument is expected: '%s'\n", argv[optind]);
	fputs("Try 'cudawd --help'.\n", stderr);
	return EXIT_USAGE;
}

static void catch_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	/* Who reads what we say may have ended. */
	signal(SIGPIPE, SIG_IGN);
	/* The child that asks NVML needs no wait(2). */
	signal(SIGCHLD, SIG_IGN);
}

/* That of the machine, or what may stand in for it. */
static bool is_node(const struct options *options, const struct daemon_socket *opened)
{
	const char *path = options->path ? options->path : "";

	return opened->everybody ||
	       !strncmp(path, DAEMON_NODE_DIR "/", strlen(DAEMON_NODE_DIR "/"));
}

int main(int argc, char **argv)
{
	const struct connection_actions actions = {.line = take_line, .gone = members_leave};
	struct options options = {.path = NULL};
	struct daemon_socket opened;
	int code = parse(argc, argv, &options);

	if (code >= 0)
		return code;
	if (socket_open(options.path, &opened))
		return EXIT_FAILURE;
	code = EXIT_FAILURE;
	if (rules_init(&options.values, options.conf, is_node(&options, &opened)))
		goto out;
	if (members_init()) {
		fputs("cudawd: out of memory\n", stderr);
		goto out;
	}
	catch_signals();
	connections_init(opened.fd, opened.everybody, &actions);
	serve(&opened);
	code = EXIT_SUCCESS;
out:
	socket_remove();
	return code;
}
