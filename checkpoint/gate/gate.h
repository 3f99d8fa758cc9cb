/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_GATE_H
#define CUDAW_GATE_H
/*
 * The gate: what every driver call of the program passes, and what a pause closes.
 *
 * A thread says that it is inside by a plain store to its own cache line and then looks whether
 * the gate is closed; the pauser closes the gate, makes every running thread execute a barrier
 * (membarrier(2)), and then looks at the threads. One of the two sees the other. That costs about
 * 1 ns a call, where a contended rwlock costs 300 ns.
 *
 * Where membarrier is refused (old kernels, a seccomp filter that the program installs while it
 * runs) the gate finds out as it closes. From then on each thread executes the barrier itself
 * (GATE_FENCE). For those that entered without one just before, the pauser waits FENCE_WAIT_MS with
 * the gate closed: the mark of such a thread is on its way out of a store buffer, which takes less
 * than a microsecond and waits for nothing that the thread does; an entry that comes later finds
 * the gate closed. So the wait is as good as the barrier, and is paid once in a process.
 *
 * The mark is in memory of ours that is never freed (a slot, gate.c), so that no look at it depends
 * on how a thread ends: by return, pthread_exit(), cancellation or the bare system call, with calls
 * of its last destructors or inside a call. The kernel says that its owner has ended, and the slot
 * goes to the next thread.
 *
 * Two kinds of being inside:
 *
 *	GATE_HOLD	the call submits work or touches memory. The pauser waits for it before
 *			it drains the GPU.
 *	GATE_WAIT	the call only waits for work that others submitted. It must not hold up
 *			the pause, which may be what it waits for; but it has to have left the driver
 *			before the driver's own checkpoint begins.
 *
 * A call inside another call of its thread (a profiler's callback, a signal handler, the cleanup of
 * a cancelled thread) always goes in, as the pauser waits for the outer one. So work may be
 * submitted by a GATE_HOLD inside a GATE_WAIT, which counts as the outer one does: who drained the
 * GPU while waiters were inside drains it again when they have left.
 *
 * A signal handler may come between any two steps of an entry. "depth" is set when the mark has
 * been made and the gate found open, and "depth with a mark" is what says that the thread is
 * inside: the mark is then up since before the gate was found open, or the pauser waits for it. A
 * handler that finds less than that enters for itself, and takes the mark with it when it leaves.
 * So the interrupted entry looks for its mark after it has set depth, and begins anew where it is
 * gone. A handler that comes in between sees depth without a mark, and does not take that for being
 * inside.
 *
 * gate_refuse() turns callers away for good with an error instead of letting them in: in a forked
 * child, where CUDA does not work, and in a process that exits while it is paused.
 *
 * One thread at a time closes and opens the gate (the engine's). The gate makes no CUDA call.
 *
 * tests/unit/checkpoint/test_gate_model.c goes through all interleavings of these steps: who changes one here
 * changes it there, too.
 */
#include <cuda.h>
#include <stdbool.h>
#include <sys/types.h>

enum gate_kind { GATE_OUT, GATE_HOLD, GATE_WAIT };

/* Bits of gate_flags: what keeps a caller from the fast path. */
enum gate_flag {
	GATE_CLOSED = 1,
	GATE_REFUSES = 2,
	GATE_FENCE = 4,   /* no membarrier: the caller executes the barrier */
	GATE_HELD = 8,    /* closed, but to waiters and to the admitted */
	GATE_ADMITS = 16, /* the bits from this one on: how many calls are admitted still */
};

struct gate_thread {
	int *inside; /* enum gate_kind, in a slot: read by the pauser; NULL before the first call */
	unsigned int depth; /* nested calls: a profiler's callback may call the driver */
};

extern __thread struct gate_thread gate_self __attribute__((tls_model("initial-exec")));
extern int gate_flags;

bool gate_enter_slow(enum gate_kind kind);

/* Enter, after waiting for an open gate. False: the call is refused with gate_refusal(). */
__attribute__((always_inline)) static inline bool gate_enter(enum gate_kind kind)
{
	struct gate_thread *self = &gate_self;
	int *inside = self->inside;

	if (self->depth) {
		if (__atomic_load_n(inside, __ATOMIC_RELAXED) == GATE_OUT)
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

/*
 * The error for a call that gate_enter() turned away: gate_refuse()'s, or CUDA_ERROR_OUT_OF_MEMORY
 * where the thread got no slot.
 */
CUresult gate_refusal(void);

/*
 * Once in a process, before the gate is closed for the first time. Returns 0, or a negative errno
 * where the end of a thread cannot be seen: the gate must not be closed then.
 */
int gate_init(void);

/* They return when whoever is inside can be seen to be: see gate_wait_until_out(). */
void gate_close(void);
void gate_open(void);

/*
 * Close the gate to GATE_HOLD only: a caller that but waits goes in and out, so that its thread
 * comes to its next call. gate_close() then closes it to all.
 */
void gate_hold(void);

/*
 * With the gate held: let the next @calls callers in as GATE_HOLD, whichever threads they are of.
 * Returns how many came before @deadline_ms, or before *@cancel became true; no more come after
 * it. They may still be inside.
 */
unsigned int gate_admit(unsigned int calls, double deadline_ms, const bool *cancel);

/*
 * With the gate closed: wait until no thread but the caller is inside as @kind. False when
 * @deadline_ms (CLOCK_MONOTONIC, see clock_ms) passes first, or *@cancel becomes true.
 */
bool gate_wait_until_out(enum gate_kind kind, double deadline_ms, const bool *cancel);

/*
 * The thread id of one thread but the caller that is inside as @kind; 0 where there is none. One
 * that left its call by longjmp() is inside until it ends.
 */
pid_t gate_inside(enum gate_kind kind);

/* From now on refuse every call with @error, those that wait at the gate included. */
void gate_refuse(CUresult error);

/* In the child of a fork: forget the other threads, open the gate. Takes no lock. */
void gate_after_fork(void);

#endif
