/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gate/gate.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/patience.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALL_ADMITS    (-(int)GATE_ADMITS)
#define ALL_CLOSED    (GATE_CLOSED | GATE_HELD | GATE_SHUT | GATE_RESTS | ALL_ADMITS)
#define FENCE_WAIT_MS 10  /* ten thousand times the delay of a store buffer */
#define CHUNK_SLOTS   127 /* of 128 bytes each: 16 KiB with the header */

/*
 * The mark of a thread. Its owner holds the robust mutex from its first call until it ends. However
 * it ends, the kernel marks the mutex, and the next thread that tries it gets the slot.
 */
struct slot {
	int inside; /* enum gate_kind */
	pid_t tid;  /* of the owner */
	pthread_mutex_t owned __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/* Chunks are added, never removed, so that the list is read without a lock. */
struct chunk {
	struct chunk *next;
	struct slot slots[CHUNK_SLOTS];
};

__thread struct gate_thread gate_self __attribute__((tls_model("initial-exec")));
int gate_flags;
static int changes; /* of gate_flags, which may soon be the same again: waiters sleep on this */

/* gate_call_later()'s, or NULL. */
static __thread void (*later)(void) __attribute__((tls_model("initial-exec")));

static struct chunk *chunks;
static void (*wake)(void); /* gate_set_wake()'s, or NULL */
static int exit_ms;        /* for which a call of a thread in exit() waits; 0: none is there */
static __thread bool in_exit __attribute__((tls_model("initial-exec")));
/* How often the gate was opened; and what that was, plus 1, when a call had to wait last. */
static unsigned int openings, waited;
static int refusal = CUDA_ERROR_DEINITIALIZED;

static int robust_init(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int error;

	pthread_mutexattr_init(&attr);
	error = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (!error)
		error = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return error;
}

static bool add_chunk(void)
{
	struct chunk *chunk = mmap(NULL, sizeof(*chunk), PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return false;
	/*
	 * If this fails, gate_init() has reported it. Zeros are a plain mutex, which works as well.
	 */
	for (size_t i = 0; i < CHUNK_SLOTS; i++)
		robust_init(&chunk->slots[i].owned);
	chunk->next = __atomic_load_n(&chunks, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&chunks, &chunk->next, chunk, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	return true;
}

/* The slot after @slot, or the first after NULL; NULL after the last one. */
static struct slot *next_slot(struct chunk **chunk, struct slot *slot)
{
	if (!slot)
		*chunk = __atomic_load_n(&chunks, __ATOMIC_ACQUIRE);
	else if (++slot < (*chunk)->slots + CHUNK_SLOTS)
		return slot;
	else
		*chunk = (*chunk)->next;
	return *chunk ? (*chunk)->slots : NULL;
}

/* Take @slot if it has no owner or its owner has ended. True on success. */
static bool own(struct slot *slot)
{
	int error = pthread_mutex_trylock(&slot->owned);

	if (error == EOWNERDEAD)
		error = pthread_mutex_consistent(&slot->owned);
	if (error)
		return false;
	__atomic_store_n(&slot->inside, GATE_OUT, __ATOMIC_RELAXED);
	return true;
}

/*
 * Get a slot for this thread. No signal handler may interrupt it: libc's list of the thread's
 * robust mutexes is not safe then.
 */
static bool take_slot(void)
{
	struct chunk *chunk;
	struct slot *slot;
	sigset_t all, mask;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	do {
		for (slot = next_slot(&chunk, NULL); slot && !own(slot);)
			slot = next_slot(&chunk, slot);
	} while (!slot && add_chunk());
	if (slot) {
		__atomic_store_n(&slot->tid, gettid(), __ATOMIC_RELAXED);
		gate_self.inside = &slot->inside;
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return slot;
}

/* Of a call of a process that ends: when it stops to wait. 0: not yet known. */
struct exit_wait {
	struct patience patience;
	double limit_ms;
};

/*
 * Sleep until the flags have changed since there were @seen changes, or for a while. False: the call stops to
 * wait.
 */
static bool await_change(int seen, struct exit_wait *w)
{
	int ms = __atomic_load_n(&exit_ms, __ATOMIC_SEQ_CST);
	struct timespec slice = {0};
	double left;

	if (ms) {
		if (!w->limit_ms)
			w->limit_ms = in_exit ? ms : 2 * GATE_EXIT_MS;
		left = w->limit_ms - patience_ms(&w->patience);
		if (left <= 0 && in_exit && ms > 1)
			__atomic_store_n(&exit_ms, ms / 2, __ATOMIC_RELAXED);
		if (left <= 0)
			return false;
		slice.tv_nsec =
			clock_poll(left < PATIENCE_SLICE_MS ? left : PATIENCE_SLICE_MS) * 1000000L;
	}
	syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen, ms ? &slice : NULL, NULL, 0);
	return true;
}

/* Returns the former flags. */
static int set_flags(int set, int clear)
{
	int old = __atomic_load_n(&gate_flags, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(&gate_flags, &old, (old & ~clear) | set, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	__atomic_fetch_add(&changes, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
	return old;
}

/* With the caller marked as inside: true if it may stay. */
static bool pass_closed(enum gate_kind kind)
{
	int flags = __atomic_load_n(&gate_flags, __ATOMIC_SEQ_CST);

	if (kind == GATE_ASK)
		return !(flags & (GATE_SHUT | GATE_REFUSES));
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

/* True if @flags would let a caller in. */
static bool may_try(int flags, enum gate_kind kind)
{
	if (kind == GATE_ASK)
		return !(flags & GATE_SHUT);
	return !(flags & GATE_CLOSED) || flags >= GATE_ADMITS ||
	       (flags & GATE_HELD && kind == GATE_WAIT);
}

static void wake_other(void)
{
	void (*call)(void) = __atomic_load_n(&wake, __ATOMIC_ACQUIRE);

	if (call)
		call();
}

/* A call has come. */
static void note_use(void)
{
	if (__atomic_fetch_and(&gate_flags, ~GATE_WATCHED, __ATOMIC_SEQ_CST) & GATE_WATCHED)
		wake_other();
}

/* A call has to wait. The gate had been opened @era times before the caller saw it closed. */
static void note_waiter(unsigned int era)
{
	unsigned int last = __atomic_load_n(&waited, __ATOMIC_RELAXED);

	while ((int)(era + 1 - last) > 0)
		if (__atomic_compare_exchange_n(&waited, &last, era + 1, false, __ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED)) {
			wake_other();
			return;
		}
}

void gate_set_wake(void (*call)(void))
{
	__atomic_store_n(&wake, call, __ATOMIC_RELEASE);
}

void gate_watch(void)
{
	__atomic_fetch_or(&gate_flags, GATE_WATCHED, __ATOMIC_SEQ_CST);
}

void gate_unwatch(void)
{
	__atomic_fetch_and(&gate_flags, ~GATE_WATCHED, __ATOMIC_SEQ_CST);
}

bool gate_is_unused(void)
{
	return __atomic_load_n(&gate_flags, __ATOMIC_SEQ_CST) & GATE_WATCHED;
}

bool gate_has_waiter(void)
{
	return gate_is_closed() && __atomic_load_n(&waited, __ATOMIC_SEQ_CST) ==
					   __atomic_load_n(&openings, __ATOMIC_SEQ_CST) + 1;
}

void gate_call_later(void (*call)(void))
{
	later = call;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	gate_self.depth = GATE_OWES;
}

/* After an attempt to enter. */
static void make_later_call(bool in)
{
	void (*call)(void) = later;

	if (!call)
		return;
	if (in) {
		later = NULL;
		call();
	} else {
		gate_call_later(call);
	}
}

bool gate_enter_slow(enum gate_kind kind)
{
	struct gate_thread *self = &gate_self;
	int saved_errno = errno;
	struct exit_wait w = {0};
	bool in = false;

	while (!in && (self->inside || take_slot())) {
		self->depth = 0;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		__atomic_store_n(self->inside, GATE_OUT, __ATOMIC_RELEASE);
		int seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);
		unsigned int era = __atomic_load_n(&openings, __ATOMIC_SEQ_CST);
		int flags = __atomic_load_n(&gate_flags, __ATOMIC_SEQ_CST);
		if (flags & GATE_REFUSES || (kind == GATE_ASK && flags & GATE_RESTS))
			break;
		if (flags & GATE_WATCHED && kind != GATE_ASK) {
			note_use();
			continue;
		}
		if (!may_try(flags, kind)) {
			note_waiter(era);
			if (!await_change(seen, &w))
				break;
			continue;
		}
		__atomic_store_n(self->inside, kind, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!pass_closed(kind))
			continue;
		self->depth = 1;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		in = __atomic_load_n(self->inside, __ATOMIC_RELAXED) != GATE_OUT;
	}
	make_later_call(in);
	errno = saved_errno;
	return in;
}

CUresult gate_refusal(void)
{
	if (!gate_self.inside)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return __atomic_load_n(&refusal, __ATOMIC_RELAXED);
}

int gate_init(void)
{
	pthread_mutex_t mutex;
	int error = robust_init(&mutex);

	if (error)
		return -error;
	pthread_mutex_destroy(&mutex);
	/* If this fails, so does the first barrier. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	return 0;
}

/* With the gate closed: make every thread's mark visible. See gate.h. */
static void barrier(void)
{
	double until_ms;

	if (__atomic_load_n(&gate_flags, __ATOMIC_RELAXED) & GATE_FENCE ||
	    !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return;
	set_flags(GATE_FENCE, 0);
	until_ms = clock_ms() + FENCE_WAIT_MS;
	while (clock_ms() < until_ms)
		usleep(1000);
}

static void close_to(int flags)
{
	set_flags(flags, ALL_CLOSED);
	barrier();
}

void gate_close(void)
{
	close_to(GATE_CLOSED);
}

void gate_hold(void)
{
	close_to(GATE_CLOSED | GATE_HELD);
}

void gate_shut(void)
{
	close_to(GATE_CLOSED | GATE_SHUT);
}

void gate_rest(void)
{
	set_flags(GATE_RESTS, 0);
}

void gate_open(void)
{
	set_flags(0, ALL_CLOSED);
	__atomic_fetch_add(&openings, 1, __ATOMIC_SEQ_CST);
}

unsigned int gate_admit(unsigned int calls, double deadline_ms, const bool *cancel)
{
	unsigned int sleep_us = 20, left;

	set_flags(calls * GATE_ADMITS, ALL_ADMITS);
	while (__atomic_load_n(&gate_flags, __ATOMIC_RELAXED) >= GATE_ADMITS &&
	       limits_ms() < deadline_ms && !__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
		usleep(sleep_us);
		if (sleep_us < 500)
			sleep_us *= 2;
	}
	left = (unsigned int)set_flags(0, ALL_ADMITS) / GATE_ADMITS;
	return calls - left;
}

static bool is_inside(struct slot *slot, enum gate_kind kind)
{
	if (&slot->inside == gate_self.inside ||
	    __atomic_load_n(&slot->inside, __ATOMIC_ACQUIRE) != (int)kind)
		return false;
	if (!own(slot))
		return true;
	pthread_mutex_unlock(&slot->owned); /* its owner ended inside */
	return false;
}

pid_t gate_inside(enum gate_kind kind)
{
	struct chunk *chunk;
	struct slot *slot = NULL;

	while ((slot = next_slot(&chunk, slot)))
		if (is_inside(slot, kind))
			return __atomic_load_n(&slot->tid, __ATOMIC_RELAXED);
	return 0;
}

bool gate_wait_until_out(enum gate_kind kind, double deadline_ms, const bool *cancel)
{
	unsigned int sleep_us = 20;

	while (gate_inside(kind)) {
		if (limits_ms() > deadline_ms || __atomic_load_n(cancel, __ATOMIC_RELAXED))
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

void gate_exits(void)
{
	int none = 0;

	in_exit = true;
	if (__atomic_compare_exchange_n(&exit_ms, &none, GATE_EXIT_MS, false, __ATOMIC_SEQ_CST,
					__ATOMIC_RELAXED))
		set_flags(0, 0); /* for those who wait already */
}

void gate_after_fork(void)
{
	const int *was = gate_self.inside;

	gate_flags &= GATE_FENCE;
	/* The slots of the parent's threads stay taken, so the child starts with a new chunk. */
	chunks = NULL;
	if (was && take_slot())
		*gate_self.inside = *was;
}
