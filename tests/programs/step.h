/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_STEP_H
#define CUDAW_STEP_H
/*
 * The frame of every test program: set up, run steps until done or told to end, verify, print.
 *
 * A pause may hit anywhere, so a program does its work in many short steps and names each one on
 * stdout. What goes to stdout depends on the options alone: a native and a wrapped run are
 * compared line by line. Everything else (addresses, times) goes to stderr.
 *
 * With STEP_LINGER in the environment a program that has made its steps ends only when stdin does,
 * so that what is done to a running one always finds it, on a slow machine too.
 *
 * Options of every program; step_parse() takes more from the program itself:
 *
 *	--steps N	how many steps
 *	--step-ms N	sleep so long after each
 *	--each-line 1	make a step for each byte on stdin, and end with stdin
 *	--start-line 1	say "before CUDA", and make the first CUDA call when a line comes on stdin
 *	--term-exit N	on SIGTERM call exit(N) from the handler, as careless programs do
 *
 * SIGINT ends the program after the step it is in; it still verifies and prints its result.
 *
 * The header is C and C++, for the .c and .cu programs.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct step_option {
	const char *name;
	unsigned long *value;
};

static unsigned long step_count = 50;
static unsigned long step_ms;
static unsigned long step_each_line;
static unsigned long step_start_line;
static unsigned long step_term_exit;
static volatile sig_atomic_t step_told;

/* The exit status of a program, or a rank, that found wrong data, and that UBSan has ended; tests/harness.py. */
#define STEP_WRONG_DATA 65
#define STEP_SANITIZER  86

__attribute__((noreturn, format(printf, 2, 0))) static inline void step_end(int status,
									    const char *fmt,
									    va_list ap)
{
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	exit(status);
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void step_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	step_end(1, fmt, ap);
}

/* The program has found other data than it must have. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void step_wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	step_end(STEP_WRONG_DATA, fmt, ap);
}

/* The last call of CALL in this thread, for step_tell_crashes(). */
static __thread const char *step_call __attribute__((unused));

/* For calls that return CUresult, cudaError_t or a library's status: 0 is success in all. */
#define CALL(call)                                                                         \
	do {                                                                               \
		int code_ = (step_call = #call, (int)(call));                              \
		if (code_)                                                                 \
			step_die("%s:%d: %s: error %d", __FILE__, __LINE__, #call, code_); \
	} while (0)

/* A crash of the driver leaves no other trace. The kernel ends the program after this. */
static inline void step_on_crash(int sig)
{
	const char *call = step_call ? step_call : "no call: a thread of the driver";
	char text[512];
	int length = snprintf(text, sizeof(text), "signal %d in thread %d, in or after: %s\n", sig,
			      (int)gettid(), call);

	(void)!write(STDERR_FILENO, text, (size_t)length);
}

/* Say in which call a thread dies by SIGSEGV. */
static inline void step_tell_crashes(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = step_on_crash;
	action.sa_flags = (int)SA_RESETHAND;
	sigaction(SIGSEGV, &action, NULL);
}

static inline void step_sleep_ms(unsigned long ms)
{
	struct timespec left;

	left.tv_sec = (time_t)(ms / 1000);
	left.tv_nsec = (long)(ms % 1000) * 1000000;
	/* The signals of a pause interrupt the sleep; the program must not run faster for it. */
	while (nanosleep(&left, &left))
		;
}

/*
 * The seconds after which whoever has not done its part hangs. With SANITIZE in the environment, as
 * in the tests of a build with sanitizers, all is several times as slow.
 */
static inline unsigned int step_hang_s(void)
{
	const char *sanitizers = getenv("SANITIZE");

	return sanitizers && *sanitizers ? 300 : 60;
}

static inline double step_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A child, or a rank, has ended with @status, of waitpid(): what it found is what the program found. */
__attribute__((noreturn)) static inline void step_child_failed(const char *what,
							       unsigned long number, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

	fprintf(stderr, "%s %lu ended with status %#x\n", what, number, status);
	exit(code == STEP_WRONG_DATA || code == STEP_SANITIZER ? code : 1);
}

/* Wait for child @number. A child that hangs is killed, and one that fails ends the program, too. */
static inline void step_await_child(pid_t pid, unsigned long number)
{
	double end = step_seconds() + step_hang_s();
	unsigned int sleep_us = 50;
	int status;
	pid_t ended;

	while (!(ended = waitpid(pid, &status, WNOHANG)) && step_seconds() < end) {
		usleep(sleep_us);
		if (sleep_us < 10000)
			sleep_us *= 2;
	}
	if (!ended) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		step_die("child %lu hangs", number);
	}
	if (ended < 0)
		step_die("child %lu: waitpid: %s", number, strerror(errno));
	if (status)
		step_child_failed("child", number, status);
}

/*
 * Wait for a byte on stdin; returns 0 at its end. Not by stdio: a signal does not fail it for good.
 */
static inline int step_wait_byte(void)
{
	char byte;
	ssize_t got;

	do
		got = read(STDIN_FILENO, &byte, 1);
	while (got < 0 && errno == EINTR);
	return got > 0;
}

/* Say @said, and wait for a line on stdin. */
static inline void step_wait_line(const char *said)
{
	char line[16];

	printf("%s\n", said);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		step_die("%s: nobody is there any more", said);
}

static inline void step_on_int(int sig)
{
	(void)sig;
	step_told = 1;
}

static inline void step_on_term(int sig)
{
	(void)sig;
	exit((int)step_term_exit);
}

static int step_no_leak_check;

/* LSan asks this before its check at the end of a process, also where it alone is linked. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return step_no_leak_check;
}

/*
 * exit() in a forked child of a process with several threads. LSan's check would take all locks of
 * ASan's allocator there. Another thread may have held one during the fork(), and the child would
 * wait for it for ever; and what was known to the stacks of other threads would count as leaked.
 */
__attribute__((noreturn)) static inline void step_exit_child(int status)
{
	step_no_leak_check = 1;
	exit(status);
}

static inline void step_set(const char *name, const char *text, const struct step_option *options,
			    int count)
{
	char *end;

	for (int i = 0; i < count; i++) {
		if (strcmp(name, options[i].name))
			continue;
		*options[i].value = strtoul(text, &end, 0);
		if (*text && !*end)
			return;
	}
	fprintf(stderr, "bad option: --%s %s\n", name, text);
	exit(2);
}

static inline void step_parse(int argc, char **argv, const struct step_option *extra, int count)
{
	const struct step_option common[] = {
		{"steps", &step_count},         {"step-ms", &step_ms},
		{"each-line", &step_each_line}, {"start-line", &step_start_line},
		{"term-exit", &step_term_exit},
	};
	const int ncommon = (int)(sizeof(common) / sizeof(common[0]));

	for (int i = 1; i < argc; i += 2) {
		const char *name = argv[i];
		const char *text = i + 1 < argc ? argv[i + 1] : "";
		int is_common = 0;

		if (strncmp(name, "--", 2)) {
			fprintf(stderr, "not an option: %s\n", name);
			exit(2);
		}
		for (int k = 0; k < ncommon; k++)
			is_common |= !strcmp(name + 2, common[k].name);
		if (is_common)
			step_set(name + 2, text, common, ncommon);
		else
			step_set(name + 2, text, extra, count);
	}
	signal(SIGINT, step_on_int);
	if (step_term_exit)
		signal(SIGTERM, step_on_term);
	if (step_start_line) {
		puts("before CUDA");
		fflush(stdout);
		step_wait_byte();
	}
}

/* True where step @k (from 0) is still to be done. */
static inline int step_more(unsigned long k)
{
	if (k < step_count && (!step_each_line || step_wait_byte()))
		return !__atomic_load_n(&step_told, __ATOMIC_RELAXED);
	while (getenv("STEP_LINGER") && step_wait_byte())
		;
	return 0;
}

/* Step @k is done. */
static inline void step_done(unsigned long k)
{
	printf("step %lu\n", k + 1);
	fflush(stdout);
	step_sleep_ms(step_ms);
}

#define STEP_DIGEST_INIT 0xcbf29ce484222325ULL

/* FNV-1a: what a program computed, in one word. */
static inline uint64_t step_digest(uint64_t digest, const void *data, size_t size)
{
	const unsigned char *bytes = (const unsigned char *)data;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ bytes[i]) * 0x100000001b3ULL;
	return digest;
}

static inline void step_print_digest(const char *what, uint64_t digest)
{
	printf("%s %016llx\n", what, (unsigned long long)digest);
	fflush(stdout);
}

#endif
