/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads and programs that use CUDA as they end: in destructors of their last round, after which
 * nobody is called any more, by a bare system call, cancelled, in exit handlers.
 */
#include "tests/guests/programs/guest.h"

#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <threads.h>

#define THREADS 16
#define ROUNDS  8

static struct guest_memory memory;
static pthread_key_t keys[2];

static void use_cuda(void)
{
	uint32_t word;

	CALL(cuCtxSetCurrent(memory.kernels.ctx));
	CALL(cuMemcpyDtoH_v2(&word, memory.data, sizeof(word)));
	CALL(cuMemsetD32_v2(memory.data, word, 1));
}

/* Sets its key anew for as long as the C library calls it again. */
static void destroy(void *value)
{
	uintptr_t round = (uintptr_t)value;

	use_cuda();
	if (round < PTHREAD_DESTRUCTOR_ITERATIONS + 2)
		pthread_setspecific(keys[1], (void *)(round + 1));
}

static void *end_by_destructors(void *arg)
{
	pthread_setspecific(keys[1], (void *)1);
	return arg;
}

static void *end_by_both(void *arg)
{
	use_cuda();
	return end_by_destructors(arg);
}

static void *end_by_exit(void *arg)
{
	use_cuda();
	pthread_setspecific(keys[1], (void *)1);
	pthread_exit(arg);
}

static int *raw_ended;

/* Not even its thread's memory is given back, so that it is still there to be looked at. */
static void *end_by_system_call(void *arg)
{
	use_cuda();
	__atomic_fetch_add(raw_ended, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_exit, 0);
	return arg;
}

static void *end_by_cancel(void *arg)
{
	for (;;) {
		/* Inside the driver it would leave the driver's locks behind. */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		use_cuda();
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		pthread_testcancel();
	}
	return arg;
}

static void many(void *(*start)(void *), int joins, int cancels)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CALL(pthread_create(&threads[i], NULL, start, NULL));
	for (int i = 0; i < THREADS; i++) {
		if (cancels)
			pthread_cancel(threads[i]);
		if (joins)
			pthread_join(threads[i], NULL);
	}
}

/* On and on, while the program is paused and resumed. */
static void rounds_of(void *(*start)(void *), int joins, int cancels)
{
	guest_memory_init(&memory);
	CALL(pthread_key_create(&keys[0], NULL));
	CALL(pthread_key_create(&keys[1], destroy));
	puts("point");
	for (int i = 0; i < ROUNDS || !guest_told(); i++) {
		many(start, joins, cancels);
		guest_memory_step(&memory);
	}
	guest_memory_check(&memory);
}

static void destructors(void)
{
	rounds_of(end_by_destructors, 1, 0);
}

static void both(void)
{
	rounds_of(end_by_both, 1, 0);
}

static void thread_exits(void)
{
	rounds_of(end_by_exit, 1, 0);
}

static void cancelled(void)
{
	rounds_of(end_by_cancel, 1, 1);
}

/* The kernel clears the word of a thread's end, so these can be joined as well. */
static void raw_exits(void)
{
	static int ended;

	raw_ended = &ended;
	rounds_of(end_by_system_call, 1, 0);
}

/* They have ended, all of them, before the pause. */
static void before_a_pause(void)
{
	guest_memory_init(&memory);
	CALL(pthread_key_create(&keys[0], NULL));
	CALL(pthread_key_create(&keys[1], destroy));
	many(end_by_both, 1, 0);
	guest_point();
	many(end_by_both, 1, 0);
	guest_memory_step(&memory);
	guest_memory_check(&memory);
}

static int thrd_main(void *arg)
{
	(void)arg;
	use_cuda();
	thrd_exit(3);
}

static void c11_threads(void)
{
	thrd_t thread;
	int result;

	guest_memory_init(&memory);
	for (int i = 0; i < THREADS; i++) {
		CALL(thrd_create(&thread, thrd_main, NULL));
		CALL(thrd_join(thread, &result));
	}
	printf("the last thread said %d\n", result);
	guest_point();
	guest_memory_check(&memory);
}

/* The main thread ends, and another one goes on with CUDA. */
static void *go_on_main(void *arg)
{
	guest_point();
	use_cuda();
	guest_memory_check(&memory);
	exit(4);
	return arg;
}

static void main_thread_ends(void)
{
	pthread_t thread;

	guest_memory_init(&memory);
	CALL(pthread_create(&thread, NULL, go_on_main, NULL));
	pthread_exit(NULL);
}

static int in_exit;

static void at_exit(void)
{
	use_cuda();
	guest_memory_check(&memory);
	puts("at exit");
}

static void on_exit_too(int status, void *arg)
{
	use_cuda();
	printf("on exit %d%s\n", status, (const char *)arg);
}

__attribute__((destructor)) static void at_the_very_end(void)
{
	if (!in_exit)
		return;
	use_cuda();
	puts("at the very end");
}

static void exit_handlers(void)
{
	guest_memory_init(&memory);
	atexit(at_exit);
	on_exit(on_exit_too, "!");
	in_exit = 1;
	guest_point();
	exit(5);
}

/* CUDA is used for the first time as the program ends. */
static void first_at_exit(void)
{
	guest_memory_init(&memory);
	guest_memory_check(&memory);
}

static void exit_is_first(void)
{
	atexit(first_at_exit);
	exit(6);
}

static void quick(void)
{
	guest_memory_init(&memory);
	at_quick_exit(at_exit);
	guest_point();
	quick_exit(7);
}

static void *busy_main(void *arg)
{
	for (;;)
		use_cuda();
	return arg;
}

/* It ends while threads of it are inside CUDA. */
static void exit_beside_others(void)
{
	pthread_t threads[4];

	guest_memory_init(&memory);
	for (int i = 0; i < 4; i++)
		CALL(pthread_create(&threads[i], NULL, busy_main, NULL));
	guest_point();
	use_cuda();
	puts("ends");
	_exit(8);
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"destructors", destructors},
		{"both", both},
		{"pthread_exit", thread_exits},
		{"cancel", cancelled},
		{"raw", raw_exits},
		{"before", before_a_pause},
		{"c11", c11_threads},
		{"main", main_thread_ends},
		{"exit", exit_handlers},
		{"first", exit_is_first},
		{"quick", quick},
		{"beside", exit_beside_others},
	};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
