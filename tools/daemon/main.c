/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudawd: lets jobs take turns on GPUs that cannot hold them all.
 *
 * One thread waits in poll(2). Members and commands connect (peers.c), their lines are parsed
 * (lines.c) and taken (members.c, answers.c), and the ledger and its policy decide (turns.h). A
 * child process asks NVML (sampler.c).
 *
 * Nothing depends on the daemon: if it ends, each member has its lease again.
 */
#include "common/clock.h"
#include "common/size.h"
#include "tools/daemon/answers.h"
#include "tools/daemon/members.h"
#include "tools/daemon/peers.h"
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
	"Let jobs take turns on GPUs that cannot hold them all. 'cudaw run --share' starts it for\n"
	"the user's jobs. It listens on a socket from systemd, or else as the options say.\n"
	"\n"
	"      --user             on cudawd.sock in the runtime directory, for this user; it ends\n"
	"                         after the last member (the default)\n"
	"      --socket PATH      on PATH; if root runs it, for all users\n"
	"      --quantum SECONDS  how long a turn lasts; by default 20 times as long as it takes to\n"
	"                         begin it, but 10 to 120 s\n"
	"      --residence SECONDS  nobody has to give its turn before (2)\n"
	"      --idle SECONDS     a job that makes no GPU call for so long is idle (1)\n"
	"      --silence SECONDS  a job that owes an answer for so long is left alone (10)\n"
	"      --linger SECONDS   with --user, the time until it ends (5)\n"
	"      --margin BYTES     memory of each GPU that nobody gets (256M)\n"
	"  -h, --help             this text\n"
	"  -V, --version          the version\n"
	"\n"
	"Exit codes: 0 ended by a signal, or after the last member; 1 failed; 2 wrong usage.\n";

enum { EXIT_USAGE = 2 };

struct options {
	const char *path; /* of the socket; NULL: the default */
	double linger_ms;
	struct members_settings members;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static void take_line(struct peer *peer, char *text)
{
	double now = clock_ms();
	struct line line;
	bool good = !line_parse(text, &line);

	if (good && (peer->member || line.word == LINE_SHARE))
		good = members_take(peer, &line, now);
	else if (good)
		good = answers_take(peer, &line, now);
	if (good)
		return;
	peer_say(peer, "end " END_INVALID " not expected here: %.200s", text);
	peer_end(peer);
}

static double sooner(double a, double b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

static void wait_for_peers(double patience_ms)
{
	static struct pollfd fds[PEERS_POLL + 1];
	struct timespec limit = {0};
	int count = peers_poll(fds);
	sigset_t none;

	if (patience_ms > 0) {
		limit.tv_sec = (time_t)(patience_ms / 1000);
		limit.tv_nsec = (long)((patience_ms - (double)limit.tv_sec * 1e3) * 1e6);
	}
	fds[count] = (struct pollfd){.fd = sampler_fd(), .events = POLLIN};
	sigemptyset(&none);
	if (ppoll(fds, count + 1, patience_ms < 0 ? NULL : &limit, &none) >= 0)
		peers_handle(fds, count, clock_ms());
}

/* Until a signal comes, or, with @users_own, nobody needs the daemon for @linger_ms. */
static void serve(const struct options *options, bool users_own)
{
	double needed_ms = clock_ms();

	while (!stop) {
		double now = clock_ms(), patience;

		members_decide(now);
		answers_follow();
		if (peers_next(NULL))
			needed_ms = now;
		if (users_own && now - needed_ms >= options->linger_ms)
			return;
		patience = sooner(members_patience(now), peers_patience(now));
		if (users_own && !peers_next(NULL))
			patience = sooner(patience, needed_ms + options->linger_ms - now);
		wait_for_peers(patience);
	}
}

static bool take_seconds(const char *option, const char *text, double *ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end != text && (!*end || !strcmp(end, "s")) && seconds >= 0.001 && seconds <= 1e6) {
		*ms = seconds * 1000;
		return true;
	}
	fprintf(stderr, "cudawd: --%s %s: expected a number of seconds from 0.001 to 1000000\n",
		option, text);
	return false;
}

/* Returns -1, or an exit code. */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option names[] = {
		{"user", no_argument, NULL, 'u'},
		{"socket", required_argument, NULL, 'S'},
		{"quantum", required_argument, NULL, 'q'},
		{"residence", required_argument, NULL, 'r'},
		{"idle", required_argument, NULL, 'i'},
		{"silence", required_argument, NULL, 's'},
		{"linger", required_argument, NULL, 'l'},
		{"margin", required_argument, NULL, 'm'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	struct members_settings *members = &options->members;
	bool good = true;
	int opt, index = 0;

	while (good && (opt = getopt_long(argc, argv, "hV", names, &index)) != -1) {
		const char *name = names[index].name;

		switch (opt) {
		case 'u':
			options->path = NULL;
			break;
		case 'S':
			options->path = optarg;
			break;
		case 'q':
			good = take_seconds(name, optarg, &members->turns.quantum_ms);
			break;
		case 'r':
			good = take_seconds(name, optarg, &members->turns.residence_ms);
			break;
		case 'i':
			good = take_seconds(name, optarg, &members->idle_ms);
			break;
		case 's':
			good = take_seconds(name, optarg, &members->silence_ms);
			break;
		case 'l':
			good = take_seconds(name, optarg, &options->linger_ms);
			break;
		case 'm':
			good = size_parse(optarg, &members->margin);
			if (!good)
				fprintf(stderr, "cudawd: --margin %s: expected a size\n", optarg);
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		case 'V':
			puts("cudawd " CUDAW_VERSION);
			return EXIT_SUCCESS;
		default:
			good = false;
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
	sigprocmask(SIG_BLOCK, &ends, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	/* The child that asks NVML needs no wait(2). */
	signal(SIGCHLD, SIG_IGN);
}

int main(int argc, char **argv)
{
	struct options options = {.linger_ms = 5000,
				  .members = {.turns = {.residence_ms = 2000},
					      .idle_ms = 1000,
					      .silence_ms = 10000,
					      .margin = 256UL << 20}};
	const struct peer_actions actions = {.line = take_line, .gone = members_leave};
	struct daemon_socket opened;
	int code = parse(argc, argv, &options);

	if (code >= 0)
		return code;
	if (members_init(&options.members)) {
		fputs("cudawd: out of memory\n", stderr);
		return EXIT_FAILURE;
	}
	if (socket_open(options.path, &opened))
		return EXIT_FAILURE;
	catch_signals();
	peers_init(opened.fd, opened.everybody, &actions);
	serve(&options, opened.users_own);
	socket_remove();
	return EXIT_SUCCESS;
}
