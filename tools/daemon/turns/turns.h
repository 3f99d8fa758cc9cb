/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURNS_H
#define CUDAW_TURNS_H
/*
 * Who may have how much of the GPUs' memory, and whose turn it is: the books and the policy of
 * cudawd. No I/O, no threads, no clock: events go in, orders come out, so that a test can try any
 * schedule. One thread at a time.
 *
 * A member is a job, with all of its processes (tools/daemon/parties/parties.h). It runs with all of its memory on its
 * GPUs, or it is out: it has given up a part of its memory, and does not run until there is room for all. Bytes are of
 * the memory that cudaw carries (common/protocol/protocol.h). All times are milliseconds of one clock that never goes
 * back.
 *
 * What holds at any time:
 *	- a grant never exceeds what is free: it takes only what nobody has, or has given back
 *	- a member runs only with room for all of its memory, on all of its GPUs
 *	- room that a member does not take, as NVML shows, is there for others after a while
 *	- there is one hand-over at a time on a GPU; it is finished, not reversed
 *	- a member that its user has paused gets nothing
 *	- a member whose context was out once gets its turn beside nobody, and nobody gets one beside it
 *	- nobody is stopped while nobody waits who could run
 * turns_check() asserts these.
 *
 * Fairness is by virtual time: the time that a member ran, divided by its weight, and shared by the
 * members that ran on the GPU at once. Members that fit together are left alone, the driver divides
 * the GPU between them. One that wants to run again after it was idle need not wait for the end of a turn: if it has
 * had a second less than one of its class that runs, that one is stopped for it after its residence.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TURNS_GPUS    16
#define TURNS_MEMBERS 256
#define TURNS_GROWS   256                 /* allocations of a member that wait at once */
#define TURNS_ALL     (UINT64_C(1) << 62) /* of a yield: everything */

/* The higher one is served first, and takes the GPU from the lower one without waiting for a turn. */
enum turns_class {
	TURNS_BATCH,
	TURNS_INTERACTIVE,
};

enum turns_end {
	TURNS_OK,
	TURNS_TIMEOUT, /* its kernels did not end */
	TURNS_NOMEM,   /* too little host memory */
	TURNS_FAILED,
	TURNS_LEFT, /* of a yield: all of its processes are out, or have been let go */
};

enum turns_order_kind {
	/* Give back @each, by GPU, or more; come to rest within @timeout_ms first. @context: all, and the context. */
	TURNS_YIELD,
	TURNS_ROOM,  /* so many bytes may be on its GPUs, in all */
	TURNS_TRY,   /* the allocation @serial may try again */
	TURNS_NO,    /* the allocation @serial fails */
	TURNS_WATCH, /* @on: somebody waits for memory, so that idleness is worth telling */
	TURNS_LIMIT, /* it is idle after @timeout_ms without calls (turns_idle_limit()) */
};

struct turns_order {
	enum turns_order_kind kind;
	uint32_t id;
	uint64_t bytes; /* of a yield, the sum of @each, or TURNS_ALL */
	/* @bytes by GPU: what a yield gives there, TURNS_ALL: everything; what it may have there, in all */
	uint64_t each[TURNS_GPUS];
	uint64_t serial;
	int gpu; /* of the allocation */
	double timeout_ms;
	bool on, context;
};

struct turns_settings {
	double quantum_ms;   /* a turn; 0: 20 times the hand-over that was measured, 10 to 120 s */
	double residence_ms; /* nobody of the same class is stopped sooner; 0: 2 s, or 5 hand-overs */
	double idle_ms;      /* without calls, until a member is idle; 0: see turns_idle_limit() */
	double rest_ms;      /* at most, for the kernels of a member that is to leave */
	double takes_ms;     /* for which a member may leave room that it was given */
	double context_after_ms; /* of members that do not say themselves: turns_context_after(); 0: never */
	/*
	 * One that those of a higher class keep out for so long (kept.h) gets a turn before them, and on its GPUs no other
	 * one does so sooner than that after it; 0: never.
	 */
	double batch_after_ms;
};

/* A member as `cudaw turns` shows it. */
struct turns_view {
	const char *state; /* runs, idle, leaving, out, waits, enters or paused */
	uint64_t granted;  /* bytes that it may have on its GPUs */
	uint64_t mapped, total;
	double wait_ms;     /* it wants to run, or to grow, since then; 0: it does not */
	double left_ms;     /* of its turn, if somebody waits for it; else 0 */
	unsigned handovers; /* turns that it got */
	uint32_t waits_for; /* a member whose memory it waits for; 0: nobody's */
	int unfit_on; /* it waits, and needs more on this GPU than is there for members; -1: it does not */
	uint64_t needs, there; /* how much, and how much that is */
	const char *context;   /* in, out or restored */
};

struct turns;

/* NULL if there is no memory. */
struct turns *turns_new(const struct turns_settings *settings);
void turns_free(struct turns *t);
/* From now on. */
void turns_set(struct turns *t, const struct turns_settings *settings);

/*
 * Bytes that the members together may have on @gpu. TURNS_NO_LIMIT: nobody takes turns there. That is more
 * than any GPU has, and sums of it do not overflow.
 */
#define TURNS_NO_LIMIT (UINT64_C(1) << 60)
void turns_capacity(struct turns *t, int gpu, uint64_t bytes);
/*
 * Bytes that they may come to have there, as far as is known, if that is more than the capacity. An allocation
 * with which its member would have more than both fails; TURNS_NO_LIMIT of the capacity does not count.
 */
void turns_most(struct turns *t, int gpu, uint64_t bytes);
/*
 * Bytes that are there for members now, without a margin; 0: not known. A member that needs more gets no turn,
 * and nobody makes room for it, before there are more.
 */
void turns_there(struct turns *t, int gpu, uint64_t bytes);

/*
 * While @gpu is drained, nobody gets a turn there. Members that run there are left alone until they
 * give their turn, wait for an allocation, or end; those that come to have memory there give it.
 */
void turns_drain(struct turns *t, int gpu, bool drained);

/* A new member, which runs; 0 if there are too many. @weight: 1 to 100. */
uint32_t turns_join(struct turns *t, enum turns_class class, int weight, double now);
/* It has ended: all it had is free. Unknown members are ignored, here and below. */
void turns_leave(struct turns *t, uint32_t id, double now);

/* On @gpu it has @mapped, and @total when it runs. */
void turns_need(struct turns *t, uint32_t id, int gpu, uint64_t mapped, uint64_t total, double now);
/*
 * It has no more than @bytes there, as NVML shows (shown.h): what it says beyond that counts as nothing, except what
 * it got after NVML was asked at @asked, or a moment before. TURNS_NO_LIMIT, as for a member that joins: not known.
 * @asked: 0 if NVML was not asked anew.
 */
void turns_shown(struct turns *t, uint32_t id, int gpu, uint64_t bytes, double asked, double now);
/*
 * Contexts. Whoever needs more on a GPU than is there for members (turns_there()) can only run if contexts of others
 * go. That of a member goes, with all of its memory, once the other one has waited for @ms, or the member is out for
 * so long, whichever is first; 0: never; negative, as for a member that joins: as the settings say. From then on the
 * member runs beside nobody: kernels of a context that the driver has restored fail beside others.
 */
void turns_context_after(struct turns *t, uint32_t id, double ms);
/* NVML shows @bytes of its context on @gpu; 0: none, or it is not known. */
void turns_context(struct turns *t, uint32_t id, int gpu, uint64_t bytes, double now);
/* A yield has taken its context; @out: it is still out, and what the member needs has room for it. */
void turns_restored(struct turns *t, uint32_t id, bool out, double now);
/* A call waits in a member that is out. Of one that is paused it does not count. */
void turns_want(struct turns *t, uint32_t id, double now);
void turns_idle(struct turns *t, uint32_t id, bool idle, double now);
/* It calls again, while it has its memory: its gap between calls has ended (idleness.h). */
void turns_busy(struct turns *t, uint32_t id, double now);
/* Whether a member that has several GPUs takes room on each as it comes; at first, only for all of them at once. */
void turns_takes_parts(struct turns *t, uint32_t id, bool takes);
/*
 * After how many milliseconds without calls the member is idle, as it was told: by what its turns take to begin, and
 * by its last gaps between calls (idleness.h). It joins with the limit that this returns, and TURNS_LIMIT says when it
 * changes.
 */
double turns_idle_limit(struct turns *t, uint32_t id);
/* Its user has paused it, or lets it run again. */
void turns_paused(struct turns *t, uint32_t id, bool paused, double now);
/* @keeps: while it is paused, only its lease is taken: it waits by itself for what it lacks. */
void turns_keeps(struct turns *t, uint32_t id, bool keeps);
/* All of its memory is to be taken, or is being taken, as its user has paused it. */
bool turns_gives_all(struct turns *t, uint32_t id);
/* It answers nothing: from now on it gets nothing, and is asked for nothing, and what it has it keeps. */
void turns_aside(struct turns *t, uint32_t id, double now);
/* The allocation @serial waits for @bytes. So a try of as many has found none, and what it was promised is free. */
void turns_grow(struct turns *t, uint32_t id, uint64_t serial, int gpu, uint64_t bytes, double now);
/* Whether allocations on @gpu may have got memory that the member has not told of; for two seconds after TURNS_TRY. */
bool turns_promised(struct turns *t, uint32_t id, int gpu);
/* The allocations with serials from @first to @last do not wait any more. */
void turns_forget(struct turns *t, uint32_t id, uint64_t first, uint64_t last, double now);
/*
 * The allocation @serial that waits keeps the member from giving memory. Of the members that share a
 * GPU one waits so: the others' fail.
 */
void turns_pinned(struct turns *t, uint32_t id, uint64_t serial, double now);
/*
 * It wants to run, as a signal ends its program: if it has no turn, it gets one before all others, for
 * which they make room at once, if it takes it within 12 s of the first such call since it ran. It is not stopped before
 * that turn is over.
 */
void turns_ends(struct turns *t, uint32_t id, double now);
/*
 * Running total of its yield, which begins when its kernels have ended; and all that it has on its GPUs. It is news
 * if that is 128 MiB more than at the last news: of a yield, of what it had, and of a fill, as far as NVML shows it.
 */
void turns_freed(struct turns *t, uint32_t id, uint64_t bytes, double now);
void turns_mapped(struct turns *t, uint32_t id, uint64_t bytes, double now);
/* The same, where what it has on its GPUs is told by turns_need(); and the yield may yet be undone. */
void turns_frees(struct turns *t, uint32_t id, uint64_t bytes, double now);
void turns_filled(struct turns *t, uint32_t id, uint64_t bytes, double now);
/* The end of its yield, or of its fill: TURNS_OK then means that it runs. */
void turns_ended(struct turns *t, uint32_t id, enum turns_end end, double now);
/* Its user gives its turn to those who wait, or come to wait within 10 s, whatever their class. */
void turns_give(struct turns *t, uint32_t id, double now);

/* Orders that are to be carried out now, at most @max; call it until it returns 0. */
size_t turns_decide(struct turns *t, double now, struct turns_order *out, size_t max);
/* Milliseconds after which to call it again though nothing has happened; negative: not needed. */
double turns_next(struct turns *t, double now);

/* False if there is no such member. */
bool turns_look(struct turns *t, uint32_t id, double now, struct turns_view *view);
/* Assert what is said above. */
void turns_check(const struct turns *t);

#endif
