/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers on alternate stacks that are hardly larger than what the kernel itself needs, with an
 * unmapped page below: whoever takes more than the program does ends it.
 */
#include "tests/guests/programs/guest.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>

/* For the handler's own frames, and little else. */
#define SPARE 1024

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
static sigjmp_buf back;
static char *low, *high;
static volatile sig_atomic_t inside, outside;

static void on_signal(int sig)
{
	char here;

	(void)sig;
	if (&here > low && &here < high)
		inside++;
	else
		outside++;
}

static void on_fault(int sig)
{
	on_signal(sig);
	siglongjmp(back, 1);
}

static void take_stack(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
	char *area = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	stack_t stack = {.ss_size = size};

	if (area == MAP_FAILED)
		step_die("altstack: mmap: %s", strerror(errno));
	MUST(mprotect(area, page, PROT_NONE));
	/* Its lowest byte is the first one above the unmapped page. */
	stack.ss_sp = low = area + page;
	high = low + size;
	/* The dynamic linker saves all registers on the stack when a function is called first. */
	if (!sigsetjmp(back, 1))
		siglongjmp(back, 1);
	MUST(sigaltstack(&stack, NULL));
}

static void use_stack(void)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		MUST(sigaction(signals[i], &act, NULL));
		raise(signals[i]);
		raise(signals[i]);
	}
	act.sa_handler = on_fault;
	MUST(sigaction(SIGSEGV, &act, NULL));
	if (!sigsetjmp(back, 1))
		*(volatile char *)(low - 1) = 0;
	printf("%d handlers ran on the alternate stack, %d elsewhere\n", (int)inside, (int)outside);
}

static void smallest(void)
{
	take_stack((size_t)sysconf(_SC_MINSIGSTKSZ) + SPARE);
	use_stack();
}

static void usual(void)
{
	take_stack((size_t)sysconf(_SC_SIGSTKSZ));
	use_stack();
}

static void *thread_main(void *arg)
{
	smallest();
	return arg;
}

static void of_a_thread(void)
{
	pthread_t thread;

	CALL(pthread_create(&thread, NULL, thread_main, NULL));
	pthread_join(thread, NULL);
}

/* It has one, and its handlers do not ask for it. */
static void not_asked_for(void)
{
	take_stack((size_t)sysconf(_SC_MINSIGSTKSZ) + SPARE);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		signal(signals[i], on_signal);
		raise(signals[i]);
	}
	printf("%d handlers ran on the alternate stack, %d elsewhere\n", (int)inside, (int)outside);
}

/* SIGUSR1 and SIGUSR2 are ignored, and pause and resume the program all the same. */
static void ignored_beside_cuda(void)
{
	struct guest_memory memory;

	take_stack((size_t)sysconf(_SC_MINSIGSTKSZ) + SPARE);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	guest_memory_init(&memory);
	guest_memory_point(&memory);
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"smallest", smallest},           {"usual", usual},
		{"thread", of_a_thread},          {"not-asked-for", not_asked_for},
		{"ignored", ignored_beside_cuda},
	};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
