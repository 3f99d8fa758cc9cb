/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALL_ADMITS (-(int)GATE_ADMITS)

__thread struct gate_thread gate_self __attribute__((tls_model("initial-exec")));
int gate_flags;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate_thread *threads; /* under list_lock */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;
static bool untracked; /* a thread that the list does not know may be inside */
static int refusal = CUDA_ERROR_DEINITIALIZED;

static void thread_unlist(void *arg)
{
	struct gate_thread *thread = arg;

	pthread_mutex_lock(&list_lock);
	if (thread->listed && thread->prevp) {
		*thread->prevp = thread->next;
		if (thread->next)
			thread->next->prevp = thread->prevp;
		thread->listed = false;
	}
	pthread_mutex_unlock(&list_lock);
}

static void key_make(void)
{
	key_error = pthread_key_create(&key, thread_unlist);
}

/*
 * A thread that calls CUDA from its last destructors is listed anew, and unlisted by the next
 * round.
 */
static void thread_list(struct gate_thread *self)
{
	pthread_once(&key_once, key_make);
	if (key_error || pthread_setspecific(key, self)) {
		/* Without a destructor its entry would outlive the thread. */
		__atomic_store_n(&untracked, true, __ATOMIC_SEQ_CST);
		self->listed = true;
		return;
	}
	pthread_mutex_lock(&list_lock);
	self->next = threads;
	self->prevp = &threads;
	if (threads)
		threads->prevp = &self->next;
	threads = self;
	self->listed = true;
	pthread_mutex_unlock(&list_lock);
}

static void futex_wait(int *word, int value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

/* Returns what the flags were. */
static int set_flags(int set, int clear)
{
	int old = __atomic_load_n(&gate_flags, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(&gate_flags, &old, (old & ~clear) | set, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	syscall(SYS_futex, &gate_flags, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
	return old;
}

/* At a closed gate, with the caller marked as inside: whether it may stay. */
static bool pass_closed(enum gate_kind kind)
{
	int flags = __atomic_load_n(&gate_flags, __ATOMIC_SEQ_CST);

	while (flags & GATE_HELD && !(flags & GATE_REFUSES)) {
		if (kind == GATE_WAIT)
			return true;
		if (flags < GATE_ADMITS)
			return false;
		if (__atomic_compare_exchange_n(&gate_flags, &flags, flags - GATE_ADMITS, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return true;
	}
	return !(flags & (GATE_CLOSED | GATE_REFUSES));
}

/* Whether a caller would be let in, by @flags. */
static bool may_try(int flags, enum gate_kind kind)
{
	return !(flags & GATE_CLOSED) || flags >= GATE_ADMITS ||
	       (flags & GATE_HELD && kind == GATE_WAIT);
}

bool gate_enter_slow(enum gate_kind kind)
{
	struct gate_thread *self = &gate_self;
	int saved_errno = errno;

	for (;;) {
		__atomic_store_n(&self->inside, GATE_OUT, __ATOMIC_RELEASE);
		if (!self->listed)
			thread_list(self);
		int flags = __atomic_load_n(&gate_flags, __ATOMIC_ACQUIRE);
		if (flags & GATE_REFUSES) {
			errno = saved_errno;
			return false;
		}
		if (!may_try(flags, kind)) {
			futex_wait(&gate_flags, flags);
			continue;
		}
		__atomic_store_n(&self->inside, kind, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (pass_closed(kind))
			break;
	}
	self->depth = 1;
	errno = saved_errno;
	return true;
}

CUresult gate_refusal(void)
{
	return __atomic_load_n(&refusal, __ATOMIC_RELAXED);
}

int gate_init(void)
{
	pthread_once(&key_once, key_make);
	if (key_error)
		return -key_error;
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		set_flags(GATE_FENCE, 0);
	return 0;
}

static void close_to(int flags)
{
	set_flags(flags, ALL_ADMITS | GATE_HELD);
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

void gate_close(void)
{
	close_to(GATE_CLOSED);
}

void gate_hold(void)
{
	close_to(GATE_CLOSED | GATE_HELD);
}

void gate_open(void)
{
	set_flags(0, ALL_ADMITS | GATE_HELD | GATE_CLOSED);
}

double gate_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e3 + ts.tv_nsec * 1e-6;
}

unsigned int gate_admit(unsigned int calls, double deadline_ms, const bool *cancel)
{
	unsigned int sleep_us = 20, left;

	set_flags(calls * GATE_ADMITS, ALL_ADMITS);
	while (__atomic_load_n(&gate_flags, __ATOMIC_RELAXED) >= GATE_ADMITS &&
	       gate_now_ms() < deadline_ms && !__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
		usleep(sleep_us);
		if (sleep_us < 500)
			sleep_us *= 2;
	}
	left = (unsigned int)set_flags(0, ALL_ADMITS) / GATE_ADMITS;
	return calls - left;
}

static bool anyone_inside(enum gate_kind kind)
{
	bool found = false;

	pthread_mutex_lock(&list_lock);
	for (struct gate_thread *t = threads; t && !found; t = t->next)
		found = t != &gate_self &&
			__atomic_load_n(&t->inside, __ATOMIC_ACQUIRE) == (int)kind;
	pthread_mutex_unlock(&list_lock);
	return found;
}

bool gate_wait_until_out(enum gate_kind kind, double deadline_ms, const bool *cancel)
{
	unsigned int sleep_us = 20;

	while (__atomic_load_n(&untracked, __ATOMIC_SEQ_CST) || anyone_inside(kind)) {
		if (gate_now_ms() > deadline_ms || __atomic_load_n(cancel, __ATOMIC_RELAXED))
			return false;
		usleep(sleep_us);
		if (sleep_us < 2000)
			sleep_us *= 2;
	}
	return true;
}

void gate_refuse(CUresult error)
{
	__atomic_store_n(&refusal, error, __ATOMIC_RELAXED);
	set_flags(GATE_REFUSES, 0);
}

void gate_after_fork(void)
{
	struct gate_thread *self = &gate_self;

	pthread_mutex_init(&list_lock, NULL);
	gate_flags &= GATE_FENCE;
	threads = self->listed ? self : NULL;
	self->next = NULL;
	self->prevp = &threads;
}
