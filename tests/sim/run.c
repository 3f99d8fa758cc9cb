/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running one operation, on a stream's worker. An access to memory that is not mapped raises
 * SIGSEGV here, as it raises a fault on a GPU; the handler jumps out of the operation. Faults of
 * other threads go to the handler that was there before.
 */
#include "tests/sim/sim.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Initial-exec, since a signal handler must not allocate thread-local storage. */
static __thread sigjmp_buf *guard __attribute__((tls_model("initial-exec")));
static struct sigaction previous[2]; /* SIGSEGV, SIGBUS */

static void on_fault(int sig, siginfo_t *info, void *ucontext)
{
	struct sigaction *prev = &previous[sig == SIGBUS];

	if (guard)
		siglongjmp(*guard, CUDA_ERROR_ILLEGAL_ADDRESS);
	if (prev->sa_flags & SA_SIGINFO)
		prev->sa_sigaction(sig, info, ucontext);
	else if (prev->sa_handler != SIG_DFL && prev->sa_handler != SIG_IGN)
		prev->sa_handler(sig);
	else
		signal(sig, SIG_DFL); /* the access is repeated, and ends the process */
}

void run_fail(CUresult error)
{
	siglongjmp(*guard, (int)error);
}

void run_init(void)
{
	static bool done;
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	if (done)
		return;
	done = true;
	sigaction(SIGSEGV, &sa, &previous[0]);
	sigaction(SIGBUS, &sa, &previous[1]);
}

/* When the copy engine will be done with a copy that begins now; 0 where copies take no time. */
static uint64_t copy_deadline(const struct sim_op *op)
{
	int direction = op->copy.direction;
	uint64_t now = sim_now(), *free_at;

	if (sim.config.copy_bytes_per_ns <= 0 || direction < 0)
		return 0;
	pthread_mutex_lock(&sim.lock);
	free_at = &sim.copy_free_at[op->ctx->dev][direction];
	if (*free_at < now)
		*free_at = now;
	*free_at += (uint64_t)((double)op->copy.size / sim.config.copy_bytes_per_ns);
	now = *free_at;
	pthread_mutex_unlock(&sim.lock);
	return now;
}

static void sleep_until(uint64_t deadline)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline / 1000000000u),
		.tv_nsec = (long)(deadline % 1000000000u),
	};

	if (deadline)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

/* Whether the file @hold, if there is one, lets one more copy through. */
static bool takes_byte(const char *hold)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct stat st;
	bool had;

	pthread_mutex_lock(&lock);
	had = !stat(hold, &st) && st.st_size && !truncate(hold, st.st_size - 1);
	pthread_mutex_unlock(&lock);
	return had;
}

/* Who waits says so by a file, without a descriptor, which the program might close. */
static void say_held(const char *hold)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s.%d", hold, (int)getpid());
	mknod(path, S_IFREG | 0600, 0);
}

void wait_while_held(int direction)
{
	const char *hold = direction < 0 ? NULL : sim.config.hold[direction];

	while (hold && !access(hold, F_OK) && !takes_byte(hold)) {
		say_held(hold);
		usleep(2000);
	}
}

#ifdef __SANITIZE_THREAD__
#define TOLD_STEP (64UL << 10)

void __tsan_read1(void *at);
void __tsan_write1(void *at);

/* TSan does not see the bytes that bulk.c moves: tell it of one in so many. */
static void tell(void (*access)(void *at), const void *start, size_t size)
{
	for (size_t i = 0; i < size; i += TOLD_STEP)
		access((char *)start + i);
	if (size)
		access((char *)start + size - 1);
}
#else
#define tell(access, start, size)
#endif

static void run_copy(const struct sim_op *op)
{
	tell(__tsan_read1, op->copy.src, op->copy.size);
	tell(__tsan_write1, op->copy.dst, op->copy.size);
	bulk_copy(op->copy.dst, op->copy.src, op->copy.size);
}

static void run_set(const struct sim_op *op)
{
	if (op->set.count > 1 || op->set.width < 4) {
		tell(__tsan_write1, op->set.dst, op->set.count * op->set.width);
		bulk_fill(op->set.dst, (uint32_t)op->set.value, op->set.width, op->set.count);
	} else if (op->set.width == 4) {
		/* A stream may wait for it: see poll_is_over(). */
		__atomic_store_n((uint32_t *)op->set.dst, (uint32_t)op->set.value,
				 __ATOMIC_RELEASE);
	} else {
		__atomic_store_n((uint64_t *)op->set.dst, op->set.value, __ATOMIC_RELEASE);
	}
}

static bool poll_is_over(const struct sim_op *op)
{
	bool wide = op->poll.width == 8;
	uint64_t mask = wide ? UINT64_MAX : UINT32_MAX, value = op->poll.value & mask;
	uint64_t found = wide ? __atomic_load_n((const uint64_t *)op->poll.ptr, __ATOMIC_ACQUIRE)
			      : __atomic_load_n((const uint32_t *)op->poll.ptr, __ATOMIC_ACQUIRE);

	switch (op->poll.until) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return found == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return found & value;
	case CU_STREAM_WAIT_VALUE_NOR:
		return ~(found | value) & mask;
	default:
		return wide ? (int64_t)(found - value) >= 0 : (int32_t)(found - value) >= 0;
	}
}

static CUresult run_guarded(struct sim_op *op)
{
	sigjmp_buf env;
	int error = sigsetjmp(env, 1);

	if (error) {
		guard = NULL;
		return (CUresult)error;
	}
	guard = &env;
	if (op->kind == OP_KERNEL)
		op->kernel.code->run(op->kernel.args);
	else if (op->kind == OP_COPY)
		run_copy(op);
	else if (op->kind == OP_POLL)
		while (!poll_is_over(op))
			usleep(50);
	else
		run_set(op);
	guard = NULL;
	return CUDA_SUCCESS;
}

CUresult op_run(struct sim_op *op, CUresult status)
{
	uint64_t deadline = op->kind == OP_COPY ? copy_deadline(op) : 0;
	CUresult result;

	if (op->kind == OP_CALLBACK) {
		op->callback.fn(op->callback.stream, status, op->callback.data);
		return CUDA_SUCCESS;
	}
	if (status != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (op->kind == OP_HOST) {
		op->host.fn(op->host.data);
		return CUDA_SUCCESS;
	}
	if (op->kind == OP_COPY)
		wait_while_held(op->copy.direction);
	result = run_guarded(op);
	sleep_until(deadline);
	return result;
}
