/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is interrupted, or ends, in ways that call CUDA, while it may be paused. It handles
 * SIGINT, SIGHUP, SIGQUIT, SIGTERM and SIGUSR1, and says "got SIGNAL" in the handler. SIGINT ends it as
 * other programs. What it reads is a buffer that was filled at the beginning: "read: right", or the
 * error.
 *
 *	--mib N		the size of the buffer (8)
 *	--reads N	the first N handlers that run read its beginning: a driver may not be interrupted
 *	--once 1	the handlers are one-shot
 *	--term 1	SIGTERM's calls exit(7)
 *	--term 2	SIGTERM's calls _exit(8)
 *	--term 3	SIGTERM's executes another program, which exits with 9
 *	--exits N	an exit handler from before the first CUDA call says "exits", and reads it N times, each
 *			but the first when a byte comes on stdin
 *	--thread 1	a thread calls exit(3) when a byte comes on stdin
 *	--thread 2	a thread takes SIGTERM, which all others block, and reads the buffer
 *	--thread 3	a thread that makes no call of its own runs the handlers; all others block the signals
 */
#include "tests/programs/kernels.h"

#include <pthread.h>

#define FILL 0xa7

enum { THREAD_NONE, THREAD_EXITS, THREAD_WAITS, THREAD_HANDLES };
enum { TERM_RETURNS, TERM_EXITS, TERM_DIES, TERM_EXECUTES };

static unsigned long mib = 8, reads, once, term, exits, thread;
static CUdeviceptr kept;
static CUcontext context;

/* In handlers, too: no lock, no buffer of stdio. */
static void say(const char *what, int number)
{
	char line[64];
	int n = snprintf(line, sizeof(line), number < 0 ? "%s\n" : "%s %d\n", what, number);

	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(1);
}

static void read_kept(void)
{
	unsigned char bytes[4096];
	CUresult error;

	memset(bytes, 0, sizeof(bytes));
	error = cuCtxSetCurrent(context);
	if (!error)
		error = cuMemcpyDtoH_v2(bytes, kept, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes) && !error; i++)
		if (bytes[i] != FILL)
			_exit(STEP_WRONG_DATA);
	if (error)
		say("read: error", (int)error);
	else
		say("read: right", -1);
}

static int in_exit;

static void at_exit(void)
{
	__atomic_store_n(&in_exit, 1, __ATOMIC_RELAXED);
	say("exits", -1);
	for (unsigned long i = 0; i < exits; i++) {
		if (i)
			step_wait_byte();
		read_kept();
	}
}

static void on_signal(int sig)
{
	static volatile sig_atomic_t times;
	char *const words[] = {"sh", "-c", "exit 9", NULL};

	say("got", sig);
	if ((unsigned long)times++ < reads)
		read_kept();
	if (sig == SIGINT)
		__atomic_store_n(&step_told, 1, __ATOMIC_RELAXED);
	if (sig == SIGTERM && term == TERM_EXITS)
		exit(7);
	if (sig == SIGTERM && term == TERM_DIES)
		_exit(8);
	if (sig == SIGTERM && term == TERM_EXECUTES)
		execv("/bin/sh", words);
}

static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1};
#define HANDLED (sizeof(handled) / sizeof(handled[0]))

static void handle_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal};

	act.sa_flags = once ? SA_RESTART | (int)SA_RESETHAND : SA_RESTART;
	for (size_t i = 0; i < HANDLED; i++)
		sigaction(handled[i], &act, NULL);
}

static void *thread_main(void *arg)
{
	const sigset_t *set = arg;
	int sig;

	if (thread == THREAD_EXITS) {
		step_wait_byte();
		exit(3);
	}
	if (thread == THREAD_HANDLES) {
		pthread_sigmask(SIG_UNBLOCK, set, NULL);
		for (;;)
			pause();
	}
	while (!sigwait(set, &sig)) {
		say("got", sig);
		read_kept();
	}
	return arg;
}

static void start_thread(void)
{
	static sigset_t set;
	pthread_t id;

	sigemptyset(&set);
	for (size_t i = 0; i < (thread == THREAD_HANDLES ? HANDLED : 1); i++)
		sigaddset(&set, handled[i]);
	if (thread == THREAD_WAITS || thread == THREAD_HANDLES)
		pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (thread != THREAD_NONE && pthread_create(&id, NULL, thread_main, &set))
		step_die("interrupts: no thread");
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mib", &mib},     {"reads", &reads},
					      {"once", &once},   {"term", &term},
					      {"exits", &exits}, {"thread", &thread}};
	unsigned char *bytes;
	struct kernels kernels;
	size_t size;

	step_parse(argc, argv, options, sizeof(options) / sizeof(options[0]));
	size = mib << 20;
	bytes = malloc(size);
	if (!bytes)
		step_die("interrupts: no memory");
	if (exits)
		atexit(at_exit);
	handle_signals();
	kernels_init(&kernels);
	context = kernels.ctx;
	CALL(cuMemAlloc_v2(&kept, size));
	CALL(cuMemsetD8_v2(kept, FILL, size));
	start_thread();
	for (unsigned long k = 0; step_more(k); k++) {
		CUresult result = cuMemcpyDtoH_v2(bytes, kept, size);

		/* A call beside an exit may fail: it is for the other thread to end the process. */
		while (result && __atomic_load_n(&in_exit, __ATOMIC_RELAXED))
			pause();
		CALL(result);
		for (size_t i = 0; i < size; i++)
			if (bytes[i] != FILL)
				step_wrong("interrupts: byte %zu is %u in step %lu", i, bytes[i],
					   k);
		step_done(k);
	}
	free(bytes);
	say("every byte right", -1);
	return 0;
}
