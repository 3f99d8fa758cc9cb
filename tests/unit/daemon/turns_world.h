/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURNS_WORLD_H
#define CUDAW_TURNS_WORLD_H
/*
 * The books and the policy of turns, with jobs and GPUs that are simulated: each order is carried out
 * as a job does, at the rate of a bus, and after each event what turns.h promises is checked.
 */
#include "tools/daemon/turns/turns.h"

#define GIB     (UINT64_C(1) << 30)
#define H200    (138 * GIB)
#define TICK_MS 20.0
#define JOBS    16
#define QUANTUM 10000.0 /* of a turn, in ms */

/* Random schedules of a test. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCHEDULES 100
#else
#define SCHEDULES 1000
#endif

enum does {
	RUNS,
	DRAINS,
	GIVES,
	OUT,
	GETS,
};

struct job {
	uint32_t id; /* 0: not there */
	enum does does;
	int gpu;
	enum turns_class class;
	uint64_t mapped, total, room;
	uint64_t gives, freed; /* of the yield under way */
	double drained_at;     /* its kernels end then */
	double patience_until; /* or the yield ends */
	double lingers_ms;     /* they take so long; 0: a moment */
	uint64_t rate;         /* bytes that it gives or gets in a tick; 0: a GiB */
	int nomem;             /* so many yields find no host memory */
	bool breaks;           /* its copy fails half way */
	uint64_t keeps;        /* its copies fail when it has no more than that; 0: they do not */
	int fills_failed;      /* of a job that cannot take its memory back; -1: it can */
	bool silent;           /* it is stopped, and does nothing */
	bool paused;
	bool asleep; /* it makes no calls */
	bool said_idle, said_want;
	int idle_ms;                          /* without calls, until it says that it is idle */
	int limits;                           /* how often it was told another such time */
	double work_until, sleep_ms, work_ms; /* of an interactive job; 0: it always works */
	uint64_t grow;                        /* bytes that an allocation waits for */
	double asks_at;                       /* again, as its try has failed; 0: it asks */
	uint64_t context;                     /* bytes of its context; 0: a world without */
	bool gives_context;                   /* by the yield under way */
	bool keeps_context;                   /* it cannot give it */
	bool never_gives;                     /* nor is it asked for it */
	bool context_out;                     /* and counts in @total */
	bool restored;                        /* it was out once */
	bool came;                            /* it runs without having got a turn */
	bool pinned;                          /* and it cannot give memory meanwhile */
	int refused;                          /* allocations that failed */
	double served_ms;                     /* that it ran and worked */
	double had_ms;     /* the same, shared with those that did so on its GPU */
	double drained_ms; /* that its kernels ran on when it was to leave */
	double wants_since, longest_wait;
	int stopped; /* yields while it ran and worked */
};

struct world {
	struct turns *t;
	struct job jobs[JOBS];
	uint64_t capacity[2];
	double now;
	uint64_t serial;
	bool contexts; /* jobs have some */
	int contexts_given;
	bool exact; /* nobody takes memory beside the books */
};

/* Bytes of the contexts that are on @gpu, which no job can have. */
uint64_t world_contexts(const struct world *w, int gpu);

/* A world of two GPUs and no jobs. @quantum: of a turn, in ms; 0: what the policy says. */
void world_begin(struct world *w, double quantum);
void world_end(struct world *w);

/* Let the policy decide, and carry its orders out. */
void world_decide(struct world *w);

/* Let TICK_MS, or @ms, pass. */
void world_tick(struct world *w);
void world_run(struct world *w, double ms);

/* Bytes of @gpu that jobs have, and those that nobody has. */
uint64_t world_mapped(const struct world *w, int gpu);
uint64_t world_free(const struct world *w, int gpu);

/* What each of the first @n jobs ran from now on, in @ms. */
void world_measure(struct world *w, int n, double ms, double *served);

/* It starts with nothing, and allocates all of its memory by GiB. */
struct job *job_start(struct world *w, int gpu, uint64_t total, enum turns_class class, int weight);

/* It ends. */
void job_stop(struct world *w, struct job *j);

/* An allocation of @j: at once if the GPU has the memory, else it waits. */
void job_allocate(struct world *w, struct job *j, uint64_t bytes);

/* @j makes a call; it wants its memory back if it is out. */
void job_want(struct world *w, struct job *j);

/* True if @j waits for memory. */
bool job_waits(const struct job *j);

/* Tell the policy how much memory @j has and needs. */
void job_tell_need(struct world *w, struct job *j);

/* The shortest time from the beginning of a turn of @j to the end of it, in @ms; 0: none ended. */
double job_shortest_turn(struct world *w, const struct job *j, double ms);

#endif
