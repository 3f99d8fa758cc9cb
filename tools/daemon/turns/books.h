/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_BOOKS_H
#define CUDAW_BOOKS_H
/*
 * The books of turns.h, for policy.c and those who write them alone: accounts.c notes what members say, handovers.c how
 * their memory goes and comes back, and books.c says what follows.
 */
#include "tools/daemon/turns/idleness.h"
#include "tools/daemon/turns/turns.h"

#define BOOKS_GOT_MS 2000                  /* for a member to take what it got, and to say so */
#define BOOKS_STEP   (UINT64_C(128) << 20) /* half of what a job takes between two lines */

enum phase {
	PHASE_RUNS,    /* with all of its memory; what it allocates it takes unasked */
	PHASE_LEAVING, /* a yield is under way */
	PHASE_OUT,     /* it does not run */
	PHASE_ENTERS,  /* it has the turn, and gets room as there is some */
};

struct need {
	uint64_t mapped, total; /* as the member says */
	uint64_t shown;         /* by NVML; TURNS_NO_LIMIT: not known */
	uint64_t room;          /* that it may have there while it does not run, as it was told */
	uint64_t context;       /* of its context, as NVML shows; 0: none, or not known */
	uint64_t promised;      /* to allocations that may try again, and are not in books_has() */
	bool kept;              /* those of a higher class keep it out there */
	uint64_t got; /* may have come after NVML was asked for @shown, and counts like that */
};

struct grow {
	uint64_t serial, bytes;
	int gpu;
	double since;
	double pinned_at; /* 0: it does not keep the member from giving memory */
};

/* Of what has failed: it is not tried again before @until. */
struct back_off {
	double until;
	double ms; /* each time twice as long; 0: it has not failed */
};

struct account {
	uint32_t id; /* 0: the place is free */
	enum turns_class class;
	int weight;
	enum phase phase;
	double vtime; /* milliseconds of GPU / weight */
	struct need need[TURNS_GPUS];

	bool wants, paused, given, watched;
	struct idleness idleness;
	bool slot; /* a hand-over to it is under way: it has the GPUs on which it needs memory */
	bool takes_all; /* its user has paused it, or its GPU is drained: its lease is to be taken */
	bool keeps;     /* turns_keeps() */
	bool gives_all; /* of PHASE_LEAVING: everything is to be given */
	bool ran;       /* of PHASE_LEAVING: it ran before */
	bool rests;     /* the same: its kernels have ended */
	bool left;      /* of PHASE_ENTERS: it had all room and time to take some, and has not */
	bool took;      /* the same: it has taken some of it */
	bool began;     /* it has used a GPU */
	bool woken;     /* it wants to run again after it was idle */
	bool ending;    /* it is served before others (turns_ends()) */
	bool kept;      /* those of a higher class keep it out */
	bool blocked;   /* the same, with those that are not asked for memory */
	bool first; /* it gets its turn, or memory for an allocation, before those of a higher class */
	bool told;  /* of its room, since it entered */
	bool alone; /* its context was out once: it runs beside nobody */
	bool came; /* it runs without a turn: it joined, or took its memory by itself; for turns_check() */
	bool released;      /* its context is out */
	bool gives_context; /* of PHASE_LEAVING: that is to go, too */
	bool gets_contexts; /* of PHASE_ENTERS: those of others go for it */
	bool parts;         /* turns_takes_parts() */
	uint64_t
		taken; /* books_shown() when it last was seen to take some of it, or was given it */
	uint64_t yield_from; /* what it had when its yield began */
	uint64_t had;        /* the same, as far as what it says counts */
	uint64_t freed;      /* by that yield, so far */
	uint64_t gave;       /* so much of what it had, when it last was news */
	uint64_t said;       /* the most that it had in this phase, as it says */
	uint64_t filled;     /* so much of that as NVML shows, when it last was news */
	uint64_t most_out;   /* when it had given most: so much host memory it has made */
	uint32_t leaves_for; /* of PHASE_LEAVING: who gets the memory; 0: nobody */
	struct grow grows[TURNS_GROWS]; /* in the order of their beginning on each GPU */
	int ngrows;

	double phase_since, wait_since;
	double kept_ms;     /* for which those of a higher class have kept it out (kept.h) */
	double first_until; /* those of a higher class leave it its turn until then */
	double got_at;      /* the last allocation was promised its memory, or it got all back */
	double taken_at;
	double given_at;
	double progress_at; /* something has moved in its hand-over */
	double turn_at; /* its hand-over began; 0: one that shows nothing of how long they take */
	double entered_ms; /* how long its turns take to begin, averaged; 0: it had none that shows it */
	double rest_ms;         /* for its kernels, when it is to leave; 0: not yet told */
	double context_after;   /* milliseconds, as in turns_context_after() */
	double context_until;   /* it could not give its context, and is not asked for it before */
	struct back_off giving; /* it is not asked for memory */
	struct back_off taking; /* it gets no turn */
	struct back_off
		unused; /* the same, as it left its room unused: only a turn ends that sooner */
	double ending_since; /* 0: it has not said so since it ran */
	double safe_until;   /* it is not stopped before: it ends */
	unsigned handovers;
};

struct turns {
	struct turns_settings settings;
	uint64_t capacity[TURNS_GPUS], most[TURNS_GPUS], there[TURNS_GPUS];
	bool drained[TURNS_GPUS];
	/* There somebody that went first has its turn; 0: nobody did. */
	double first_until[TURNS_GPUS];
	uint32_t slot[TURNS_GPUS]; /* the member that is handed memory there; 0: none */
	struct account members[TURNS_MEMBERS];
	int nmembers; /* places that were ever used */
	uint32_t last_id;
	double now;         /* of the last event */
	double handover_ms; /* measured, averaged */
	struct turns_order orders[TURNS_MEMBERS * 2];
	size_t norders;
};

#define FOR_EACH_MEMBER(t, m)                                                                      \
	for (__typeof__(&(t)->members[0]) m = (t)->members; m < (t)->members + (t)->nmembers; m++) \
		if (m->id)

struct account *books_find(struct turns *t, uint32_t id);
/* It has memory on @gpu, or needs some there. */
bool books_uses(const struct account *m, int gpu);
/* It may have work on @gpu, also without memory there. */
bool books_is_on(const struct account *m, int gpu);
/* Both have memory on a GPU, or need some there. If one of them must run alone, a context there is enough. */
bool books_share_gpu(const struct account *a, const struct account *b);
bool books_has_one_gpu(const struct account *m);
/* It does not run, also while it gets its memory. */
bool books_is_out(const struct account *m);
/*
 * It is not asked for memory: it is silent, has just failed to give some, cannot come to rest, is paused, ends, or
 * runs on a drained GPU.
 */
bool books_gives_nothing(const struct turns *t, const struct account *m);
/* It runs, and has work. */
bool books_is_active(const struct account *m);
/* It gets room as it comes, on each GPU; others get all at once. */
bool books_takes_parts(const struct account *m);
/* It gets @bytes on @gpu that NVML may not show yet. */
void books_get(struct account *m, int gpu, uint64_t bytes, double now);
/* When the first allocation began to wait that keeps @m from giving memory; 0: none does. */
double books_pinned_at(const struct account *m);
/* What it has on @gpu, as far as what it says counts (turns_shown()); and on all GPUs. */
uint64_t books_has(const struct account *m, int gpu);
uint64_t books_mapped(const struct account *m);
/* What it says it has on all GPUs; and the rest of what it needs there. */
uint64_t books_said(const struct account *m);
uint64_t books_out(const struct account *m);
/* What NVML shows on its GPUs; TURNS_NO_LIMIT: not known. */
uint64_t books_shown(const struct account *m);
bool books_is_on_drained(const struct turns *t, const struct account *m);
/* What a member may have on @gpu at most; for more its allocations are refused. */
uint64_t books_most(const struct turns *t, int gpu);
/* What @m has there when it runs, with those of its allocations that wait which fit beside it. */
uint64_t books_wanted(const struct turns *t, const struct account *m, int gpu);
/* A GPU on which @m has more when it runs than is there (turns_there()); -1: none. */
int books_unfit_on(const struct turns *t, const struct account *m);
/*
 * Bytes of @x's context on @gpu that may go for @e, which has waited for it for long enough, or @x is out for so
 * long.
 */
uint64_t books_context_for(const struct turns *t, const struct account *e, const struct account *x,
			   int gpu);
/* What it has there, or has room for; and with that, all that nobody else may have. */
uint64_t books_may_have(const struct account *m, int gpu);
uint64_t books_held(const struct account *m, int gpu);
/* May be negative: others have taken memory. */
int64_t books_free(const struct turns *t, int gpu);

/* Charge the time since the last event. */
void books_advance(struct turns *t, double now);
void books_set_phase(struct account *m, enum phase phase, double now);
/* Number @i of @m's allocations does not wait any more. */
void books_end_grow(struct account *m, int i);
/* It was told that it has room for all of its memory, also if that is none. */
bool books_has_all_room(const struct account *m);
/* It runs, may do so without another word, or is about to. */
bool books_may_run(const struct account *m);
/* @x may run, and @e must not run beside it: the context of one of them was out once, and they share a GPU. */
bool books_keeps_out(const struct account *e, const struct account *x);
/* On all GPUs. */
uint64_t books_room(const struct account *m);
/* It has what it has, and no room for more. */
void books_end_room(struct account *m);
/* @m was given so much room, in all, on each GPU. */
void books_give_room(struct account *m, const uint64_t *room, double now);
/* It has taken all of its room, as far as is known, and copies what it had. */
bool books_has_taken_all(const struct account *m);
/* What @m says it has may be news, or what NVML shows of that. */
void books_note_filled(struct turns *t, struct account *m, double now);
/* @m could have run, as it had all room, and has not taken it: that was its turn, since it last took some. */
void books_charge_left(struct turns *t, struct account *m);
/* Others may have the room that @m does not take. */
void books_take_room_back(struct turns *t, struct account *m, double now);
/* Give the GPUs of @m's hand-over to others. */
void books_end_handover(struct turns *t, struct account *m);
/* False if there is no place for it. */
bool books_order(struct turns *t, const struct turns_order *order);

/* How long the kernels of @m may take when it is to leave. */
double books_rest_ms(const struct turns *t, const struct account *m);

/* A turn, and the time without calls until @m is idle, as they are set or follow from what hand-overs took. */
double books_quantum(const struct turns *t);
double books_idle_limit(const struct turns *t, const struct account *m);
static inline bool books_is_idle(const struct account *m)
{
	return m->idleness.since > 0;
}

#endif
