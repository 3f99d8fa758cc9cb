/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_GATE_H
#define CUDAW_GATE_H
/*
 * The gate: every driver call of the program passes it, and a pause closes it.
 *
 * A thread marks itself as inside by a plain store to its own cache line, and then checks whether
 * the gate is closed. The pauser closes the gate, makes every running thread execute a barrier
 * (membarrier(2)), and then reads the marks. One of the two sees the other. That costs about 1 ns a
 * call; a contended rwlock costs 300 ns.
 *
 * If membarrier is refused (old kernels, a seccomp filter that the program installs while it runs),
 * the gate finds out as it closes. From then on each thread executes the barrier itself
 * (GATE_FENCE). For threads that entered without a barrier just before, the pauser waits
 * FENCE_WAIT_MS with the gate closed: the mark of such a thread is on its way out of a store
 * buffer, which takes less than a microsecond and depends on nothing that the thread does. A later
 * entry finds the gate closed. So the wait is as good as the barrier, and happens once in a
 * process.
 *
 * The mark is in memory of ours that is never freed (a slot, gate.c). So reading it does not depend
 * on how a thread ends: by return, pthread_exit(), cancellation or the bare system call, with calls
 * from its last destructors or inside a call. The kernel reports that the owner has ended, and the
 * slot goes to the next thread.
 *
 * Three kinds of being inside:
 *
 *	GATE_HOLD	the call submits work or touches memory. The pauser waits for it before
 *			it drains the GPU.
 *	GATE_WAIT	the call only waits for work that others submitted. It must not hold up
 *			the pause, which may be what it waits for; but it has to have left the driver
 *			before the driver's own checkpoint begins.
 *	GATE_ASK	the call submits nothing, waits for nothing, and ends no context. It passes a
 *			closed gate as well, until gate_shut(): a watchdog that asks for an event must
 *			not wait as long as a kernel runs. From gate_rest() on it does not enter, and
 *			its caller may answer it without the driver.
 *
 * A call inside another call of its thread (a profiler's callback, a signal handler, the cleanup of
 * a cancelled thread) always enters, as the pauser waits for the outer call. So a GATE_HOLD inside
 * a GATE_WAIT or a GATE_ASK, which counts as the outer call does, may submit work: a pauser that
 * drained the GPU while others were inside drains it again when they have left.
 *
 * A signal handler may run between any two steps of an entry. An entry sets "depth" after it has
 * made the mark and found the gate open. "Depth with a mark" means that the thread is inside: the
 * mark was then up before the gate was found open, or the pauser waits for it. A handler that finds
 * less than that enters for itself, and removes the mark when it leaves. So the interrupted entry
 * checks its mark after it has set depth, and starts again if the mark is gone. A handler that runs
 * in between sees depth without a mark, and does not take that as being inside.
 *
 * gate_refuse() makes every later call fail with an error: in a forked child, in which CUDA does
 * not work. While the process exits, calls wait as ever, but not for ever (gate_exits()).
 *
 * One thread at a time closes and opens the gate (the engine's). The gate makes no CUDA call.
 *
 * Another thread may want to know whether calls come at all. It sets a flag (gate_watch()), and the
 * next call clears it, on the slow path. So calls that nobody watches pay nothing, and others pay
 * once for each look.
 *
 * tests/unit/checkpoint/test_gate_model.c tries all interleavings of these steps. A change of a
 * step here needs the same change there.
 */
#include <cuda.h>
#include <stdbool.h>
#include <sys/types.h>

enum gate_kind { GATE_OUT, GATE_HOLD, GATE_WAIT, GATE_ASK };

/* Bits of gate_flags: each keeps callers from the fast path. */
enum gate_flag {
	GATE_CLOSED = 1, /* except to GATE_ASK */
	GATE_REFUSES = 2,
	GATE_FENCE = 4,    /* no membarrier: the caller executes the barrier */
	GATE_HELD = 8,     /* closed, except to waiters and admitted calls */
	GATE_SHUT = 16,    /* closed to GATE_ASK too */
	GATE_RESTS = 32,   /* GATE_ASK does not wait */
	GATE_WATCHED = 64, /* no call has come since gate_watch() */
	GATE_ADMITS = 128, /* from this bit on: how many more calls are admitted */
};

#define GATE_OWES (1u << 31) /* the thread is outside, and gate_call_later() was called */

struct gate_thread {
	int *inside; /* enum gate_kind, in a slot: read by the pauser; NULL before the first call */
	/* Nested calls, as a profiler's callback may call the driver; or GATE_OWES. */
	unsigned int depth;
};

extern __thread struct gate_thread gate_self __attribute__((tls_model("initial-exec")));
extern int gate_flags;

bool gate_enter_slow(enum gate_kind kind);

/*
 * Enter, after waiting for an open gate. False: the call is refused with gate_refusal(), or is a
 * GATE_ASK while gate_rests().
 */
__attribute__((always_inline)) static inline bool gate_enter(enum gate_kind kind)
{
	struct gate_thread *self = &gate_self;
	int *inside = self->inside;

	if (self->depth) {
		if (self->depth == GATE_OWES ||
		    __atomic_load_n(inside, __ATOMIC_RELAXED) == GATE_OUT)
			return gate_enter_slow(kind);
		self->depth++;
		return true;
	}
	if (__builtin_expect(!inside, 0))
		return gate_enter_slow(kind);
	__atomic_store_n(inside, kind, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&gate_flags, __ATOMIC_RELAXED), 0))
		return gate_enter_slow(kind);
	self->depth = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(inside, __ATOMIC_RELAXED) == GATE_OUT, 0))
		return gate_enter_slow(kind);
	return true;
}

__attribute__((always_inline)) static inline void gate_exit(void)
{
	struct gate_thread *self = &gate_self;

	if (--self->depth)
		return;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(self->inside, GATE_OUT, __ATOMIC_RELEASE);
}

/* The calling thread is inside by a call within another call. */
static inline bool gate_is_nested(void)
{
	return gate_self.depth > 1;
}

/* A pause waits for the calling thread. For signal handlers, too. */
static inline bool gate_has_entered(void)
{
	return gate_self.inside && __atomic_load_n(gate_self.inside, __ATOMIC_RELAXED) != GATE_OUT;
}

/* A pause has begun, or tries to: the calls of other threads wait. */
static inline bool gate_is_closed(void)
{
	return __atomic_load_n(&gate_flags, __ATOMIC_RELAXED) & GATE_CLOSED;
}

/* The process is at rest, and refuses no calls: a GATE_ASK may be answered without the driver. */
static inline bool gate_rests(void)
{
	return (__atomic_load_n(&gate_flags, __ATOMIC_ACQUIRE) & (GATE_RESTS | GATE_REFUSES)) ==
	       GATE_RESTS;
}

/*
 * The error for a call that gate_enter() refused: gate_refuse()'s, or CUDA_ERROR_OUT_OF_MEMORY if
 * the thread got no slot.
 */
CUresult gate_refusal(void);

/*
 * The calling thread, which is outside, makes @call when it next enters, inside the gate: what it
 * was told at rest is made true in the driver. One call at a time; the later one counts.
 *
 * The next entry sees GATE_OWES in depth, and takes the slow path. If a signal handler asks for this
 * in the middle of an entry, that entry may go by, and @call is made by a later one on the slow
 * path.
 */
void gate_call_later(void (*call)(void));

/*
 * Called once in a process, before the gate is closed for the first time. Returns 0, or a negative
 * errno if the end of a thread cannot be seen: the gate must not be closed then.
 */
int gate_init(void);

/* They return when the mark of every thread inside is visible: see gate_wait_until_out(). */
void gate_close(void);
void gate_open(void);

/* With the gate closed: close it to GATE_ASK too. The mark of every thread inside is visible. */
void gate_shut(void);

/*
 * With the gate shut, and all that the callers of GATE_ASK need for their answers at hand: let them
 * answer, until the gate is opened.
 */
void gate_rest(void);

/*
 * Close the gate to GATE_HOLD only: a call that only waits enters and returns, so that its thread
 * reaches its next call. gate_close() then closes the gate to all.
 */
void gate_hold(void);

/*
 * With the gate held: let the next @calls calls of any threads in as GATE_HOLD. Returns how many
 * entered before @deadline_ms (limits_ms()), or before *@cancel became true; no more enter afterwards. They may
 * still be inside.
 */
unsigned int gate_admit(unsigned int calls, double deadline_ms, const bool *cancel);

/*
 * With the gate closed: wait until no thread but the caller is inside as @kind. False if
 * @deadline_ms (limits_ms()) passes first, or *@cancel becomes true.
 */
bool gate_wait_until_out(enum gate_kind kind, double deadline_ms, const bool *cancel);

/*
 * @wake is called by the first call that comes after gate_watch(), and by the first that has to wait
 * while the gate is closed. It must be async-signal-safe.
 */
void gate_set_wake(void (*wake)(void));

/* From now on notice whether a call comes, or no more. A GATE_ASK does not count. Any thread. */
void gate_watch(void);
void gate_unwatch(void);

/* True if no call has come since gate_watch(). */
bool gate_is_unused(void);

/* True if the gate is closed, and a call has come that waits. */
bool gate_has_waiter(void);

/*
 * The id of one thread other than the caller that is inside as @kind; 0 if there is none. A thread
 * that left its call by longjmp() counts as inside until it ends.
 */
pid_t gate_inside(enum gate_kind kind);

/* From now on refuse every call with @error, including calls that wait at the gate. */
void gate_refuse(CUresult error);

/*
 * The calling thread is in exit(). From now on a call of it that has waited for GATE_EXIT_MS is refused, it
 * alone: the next one waits again, for half as long, so that a program that makes many such calls ends.
 * Calls of other threads, which the thread may wait for, are refused after twice GATE_EXIT_MS.
 */
#define GATE_EXIT_MS 10000
void gate_exits(void);

/* In the child of a fork: forget the other threads, open the gate. Takes no lock. */
void gate_after_fork(void);

#endif
