/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that closes every file from a number on, whoever opened it, and opens its own under
 * these numbers: nobody else may read or write them, nor may its own come out under other numbers.
 */
#include "tests/guests/programs/guest.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PAIRS 32
#define TOP   256

static void by_closefrom(void)
{
	closefrom(3);
}

static void by_close_range(void)
{
	MUST(close_range(3, ~0U, 0));
}

static void by_close(void)
{
	for (int fd = 3; fd < TOP; fd++)
		close(fd);
}

/* All that follow on each other at once; each is written to and read from by us alone. */
static void use_all(void)
{
	int ends[PAIRS][2];
	char text[32], back[32];

	for (int i = 0; i < PAIRS; i++)
		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
	/* What is told to come by signals, while the files are there. */
	for (int i = 0; i < 10; i++) {
		raise(SIGUSR2);
		raise(SIGTERM);
	}
	for (int i = 0; i < PAIRS; i++)
		for (int k = 0; k < 2; k++) {
			snprintf(text, sizeof(text), "pair %d, end %d", i, k);
			MUST(write(ends[i][k], text, sizeof(text)));
		}
	step_sleep_ms(100);
	for (int i = 0; i < PAIRS; i++)
		for (int k = 0; k < 2; k++) {
			snprintf(text, sizeof(text), "pair %d, end %d", i, !k);
			if (recv(ends[i][k], back, sizeof(back), MSG_DONTWAIT) != sizeof(back) ||
			    strcmp(back, text))
				step_die("file %d has not what was written to it", ends[i][k]);
			if (recv(ends[i][k], back, 1, MSG_DONTWAIT) >= 0)
				step_die("file %d has more than was written to it", ends[i][k]);
		}
	puts("every file has what was written to it");
	closefrom(3);
}

static void on_signal(int sig)
{
	(void)sig;
}

static const struct guest_way ways[] = {
	{"closefrom", by_closefrom},
	{"close_range", by_close_range},
	{"close", by_close},
};

/* Without CUDA, and before it. */
static void early(int argc, char **argv)
{
	struct guest_memory memory;

	GUEST_RUN(ways, argc, argv);
	use_all();
	guest_memory_init(&memory);
	guest_memory_point(&memory);
}

/* Also under the feet of CUDA, with ours: a driver cannot resume after that. */
static void late(int argc, char **argv)
{
	struct guest_memory memory;

	guest_memory_init(&memory);
	GUEST_RUN(ways, argc, argv);
	use_all();
	guest_memory_step(&memory);
	guest_memory_check(&memory);
}

/* As a daemon starts a program. */
static void in_a_child(int argc, char **argv)
{
	struct guest_memory memory;
	int status;
	pid_t pid;

	guest_memory_init(&memory);
	pid = fork();
	if (!pid) {
		GUEST_RUN(ways, argc, argv);
		use_all();
		execl("/bin/true", "true", NULL);
		_exit(127);
	}
	MUST(waitpid(pid, &status, 0));
	printf("the child ended with %#x\n", status);
	guest_memory_point(&memory);
}

/* One file after the other is put where ours are. */
static void by_dup(int argc, char **argv)
{
	struct guest_memory memory;
	int ends[2];
	char byte;

	(void)argc;
	(void)argv;
	guest_memory_init(&memory);
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
	MUST(dup2(ends[0], TOP));
	MUST(dup2(ends[1], TOP + 1));
	for (int fd = 3; fd < 64; fd++)
		MUST(dup2(TOP, fd));
	for (int i = 0; i < 10; i++)
		raise(SIGUSR2);
	step_sleep_ms(100);
	MUST(write(TOP + 1, "text", 4));
	step_sleep_ms(100);
	printf("read %zd bytes\n", read(TOP, (char[8]){0}, 8));
	printf("then %zd\n", read(TOP + 1, &byte, 1));
	guest_memory_step(&memory);
	guest_memory_check(&memory);
}

/* What comes out as 2 is not the standard error any more. */
static void instead_of_stderr(int argc, char **argv)
{
	int is_socket = argc > 1 && !strcmp(argv[1], "socket");
	struct guest_memory memory;
	char text[4096] = "";
	int fds[2];

	guest_memory_init(&memory);
	close(STDERR_FILENO);
	if (is_socket)
		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	else
		MUST(fds[0] = open(getenv("TMPDIR"), O_TMPFILE | O_RDWR, 0600));
	printf("opened %d\n", fds[0]);
	MUST(write(fds[0], "one, ", 5));
	guest_memory_point(&memory);
	MUST(write(fds[0], "two", 3));
	MUST(is_socket ? recv(fds[1], text, sizeof(text) - 1, MSG_DONTWAIT)
		       : pread(fds[0], text, sizeof(text) - 1, 0));
	printf("it has '%s'\n", text);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int argc, char **argv);
	} when[] = {{"early", early},
		    {"late", late},
		    {"child", in_a_child},
		    {"dup", by_dup},
		    {"stderr", instead_of_stderr}};

	setlinebuf(stdout);
	signal(SIGUSR2, on_signal);
	signal(SIGTERM, on_signal);
	for (size_t i = 0; i < sizeof(when) / sizeof(when[0]); i++)
		if (argc > 1 && !strcmp(when[i].name, argv[1])) {
			when[i].run(argc - 1, argv + 1);
			return 0;
		}
	step_die("descriptors: expected early, late, child, dup or stderr");
}
