/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "common/text.h"
#include "tools/command/run/settings_text.h"
#include "tools/report/similar.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *help;
	const char *summary;
} commands[] = {
	{"run", cmd_run, help_run, "start a program so that it can be paused"},
	{"ps", cmd_ps, help_ps, "list the jobs that run under cudaw"},
	{"top", cmd_top, help_top, "show the jobs live"},
	{"pause", cmd_pause, help_pause, "move a job's GPU memory to the host, and hold the job"},
	{"resume", cmd_resume, help_resume, "give a paused job its GPU memory back"},
	{"trim", cmd_trim, help_trim, "give back the memory that a running job keeps for later"},
	{"turns", cmd_turns, help_turns, "show the jobs that take turns on GPUs"},
	{"yield", cmd_yield, help_yield, "let a job give its turn to those who wait"},
	{"events", cmd_events, help_events, "list the last events of jobs, and who asked for them"},
	{"wait", cmd_wait, help_wait, "wait until jobs are paused, off the GPU, or saved"},
	{"metrics", cmd_metrics, help_metrics, "print metrics of jobs for Prometheus"},
	{"cdi", cmd_cdi, help_cdi, "print a device description for container engines"},
	{"doctor", cmd_doctor, help_doctor, "check what works on this machine, and why not"},
	{"snapshot", cmd_snapshot, help_snapshot, "write a job to a directory"},
	{"restore", cmd_restore, help_restore, "start a job again from a directory"},
	{"inspect", cmd_inspect, help_inspect, "describe a snapshot and what it needs"},
	{"verify", cmd_verify, help_verify, "check every byte of a snapshot"},
	{"kernels", cmd_kernels, help_kernels, "list the kernels in files and their parameters"},
	{"version", cmd_version, help_version, "print the version"},
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char intro[] =
	"Usage: cudaw COMMAND [OPTION]... [ARGUMENT]...\n"
	"\n"
	"cudaw makes the GPU memory of any CUDA program virtual, so that a running job can\n"
	"give it all back (pause) and later go on as if nothing had happened (resume). The\n"
	"program is not changed.\n"
	"\n"
	"  cudaw run --name train -- python train.py   start a job\n"
	"  cudaw ps                                    see it\n"
	"  cudaw pause train                           its GPU memory is free for others\n"
	"  cudaw resume train                          it goes on where it was\n"
	"\n"
	"Commands:\n";

static const char outro[] =
	"\n"
	"'cudaw COMMAND --help' says more; so does 'man cudaw'. docs/json.md describes the output\n"
	"of '--json', which all commands except 'run', 'top', 'metrics' and 'cdi' take.\n"
	"\n"
	"Exit codes:\n"
	"  0  done\n"
	"  1  failed; a job that ran runs on, a paused one stays paused\n"
	"  2  wrong usage, or a name or PID that means several jobs\n"
	"  3  no such job, or it is starting\n"
	"  4  not permitted: the job is another user's\n"
	"  5  timed out, or a job gave no answer\n"
	"  6  not supported on this machine, or for this job; the message says which\n"
	"'cudaw run' exits with the code of its program, or with 125 if cudaw's library is missing\n"
	"or --require is not met, 126 if the program cannot be run, 127 if it is not found.\n"
	"\n"
	"'cudaw help settings' lists the environment variables.\n";

static void print_help(void)
{
	fputs(intro, stdout);
	for (size_t i = 0; i < NCOMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].summary);
	fputs(outro, stdout);
}

/* Words of other tools, for what a command of ours does, or for what none does. */
static const struct {
	const char *word, *hint;
} hints[] = {
	{"unpause", "did you mean 'resume'?"},
	{"continue", "did you mean 'resume'?"},
	{"suspend", "did you mean 'pause'?"},
	{"freeze", "did you mean 'pause'?"},
	{"start", "did you mean 'run'?"},
	{"exec", "did you mean 'run'?"},
	{"list", "did you mean 'ps'?"},
	{"ls", "did you mean 'ps'?"},
	{"status", "did you mean 'ps'?"},
	{"dump", "did you mean 'snapshot'?"},
	{"checkpoint", "did you mean 'snapshot'?"},
	{"stop", "'pause' holds a job; kill(1) ends it, and 'ps' has its PID"},
	{"kill", "kill(1) ends a job, and 'ps' has its PID"},
	{"logs", "a job writes where its program does; 'events' has what happened to it"},
};

static const char *hint_of(const char *name)
{
	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (!strcmp(hints[i].word, name))
			return hints[i].hint;
	return NULL;
}

static const struct command *find_command(const char *name)
{
	const char *names[NCOMMANDS], *meant, *hint = hint_of(name);

	for (size_t i = 0; i < NCOMMANDS; i++) {
		names[i] = commands[i].name;
		if (!strcmp(names[i], name))
			return &commands[i];
	}
	meant = similar_word(name, names, NCOMMANDS);
	if (hint)
		complain("there is no command '%s'; %s", name, hint);
	else if (meant)
		complain("there is no command '%s'; did you mean '%s'?", name, meant);
	else
		complain("there is no command '%s'", name);
	fputs("Try 'cudaw --help'.\n", stderr);
	return NULL;
}

static int is_help(const char *arg)
{
	return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

/*
 * Keep the numbers of closed standard descriptors from what the command opens, which would get its
 * output. Nothing can be written to them, and the program of 'cudaw run' finds them closed.
 */
static void fill_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Returns an exit code. */
static int carry_out(int argc, char **argv)
{
	const struct command *command;
	char name[32];

	if (argc < 2) {
		complain("no command given");
		fputs("Try 'cudaw --help'.\n", stderr);
		return EXIT_USAGE;
	}
	if (is_help(argv[1]) || (!strcmp(argv[1], "help") && argc == 2)) {
		print_help();
		return EXIT_DONE;
	}
	if (!strcmp(argv[1], "help") && !strcmp(argv[2], "settings")) {
		puts("The settings of cudaw are environment variables.\n");
		settings_text_print(stdout, SETTINGS_PLAIN);
		return EXIT_DONE;
	}
	if (!strcmp(argv[1], "help")) {
		command = find_command(argv[2]);
		if (command)
			fputs(command->help, stdout);
		return command ? EXIT_DONE : EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
		argv[1] = "version";
	command = find_command(argv[1]);
	if (!command)
		return EXIT_USAGE;
	if (argc > 2 && is_help(argv[2])) {
		fputs(command->help, stdout);
		return EXIT_DONE;
	}
	/* The caller may ignore it, and then the ends of our children could not be asked for. */
	if (command->main != cmd_run)
		signal(SIGCHLD, SIG_DFL);
	/* getopt(3) puts it in front of its messages. */
	snprintf(name, sizeof(name), "cudaw %s", command->name);
	argv[1] = name;
	return command->main(argc - 1, argv + 1);
}

/*
 * The exit code is not 0 if output was lost, unless it tells what has become of jobs. An earlier write may have failed,
 * whose reason is gone.
 */
static int said_all(int code)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return code;
	complain("stdout: %s", errno ? strerror(errno) : "the output is not whole");
	return code || report_is_by_code() ? code : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	fill_standard();
	return said_all(carry_out(argc, argv));
}
