/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PARTIES_H
#define CUDAW_PARTIES_H
/*
 * The processes of a job have one place in the books, and are one member there (turns.h): they run, or all are out.
 * They may wait for each other on the GPU, and share memory. So they come to rest together
 * (tools/job/party/rest.h), give up memory, each its part of what its GPU lacks, and run on when each has its memory
 * back. Others may have what they free once each of them frees some: before, one may fail, so that all run on;
 * after that, whoever fails stays at rest. They get room as it comes if each has one GPU, else all at once. A job
 * of one process is passed through as it is.
 *
 * Events of processes go in, and orders for processes come out. No I/O, no clock. One thread at a
 * time. Times are milliseconds, as in turns.h. "As in turns.h" below: for a process, what turns.h says of a member.
 *
 * A process that joins while its job is out is asked to follow, and one that cannot is to be let go. All of a job that
 * goes out get a pact (common/protocol/pact.h) first, and another one if a process joins or leaves meanwhile.
 * If a process cannot rest, the others that are out already get their memory back.
 */
#include "tools/daemon/turns/turns.h"
#include "tools/job/party/reach.h"

enum party_order_kind {
	PARTY_YIELD, /* TURNS_YIELD; @hold: together with others; @context: of a process that is alone */
	PARTY_ROOM, /* TURNS_ROOM, likewise */
	PARTY_SAY,  /* send the line @text */
	PARTY_TRY,
	PARTY_NO,
	PARTY_WATCH,
	PARTY_LIMIT,
	PARTY_LET_GO, /* it cannot follow its job: it is to leave */
	PARTY_PACT, /* by which those of its job resume if the daemon ends; @on: a new one, of @bytes processes */
};

struct party_order {
	enum party_order_kind kind;
	uint32_t id; /* of a process */
	uint64_t bytes;
	uint64_t serial;
	double timeout_ms;
	bool on;
	bool context;
	bool hold;
	const char *text; /* of PARTY_SAY; valid during the call */
};

struct line;
struct parties;

/* NULL if there is no memory. */
struct parties *parties_new(const struct turns_settings *settings);
void parties_free(struct parties *p);

/* The books, for what concerns no process: settings and GPUs. */
struct turns *parties_turns(struct parties *p);

/*
 * A process of the job @job of user @user joins, as @class and @weight unless others of the job are
 * there. 0 if there are too many, or no memory.
 */
uint32_t parties_join(struct parties *p, unsigned int user, const char *job, enum turns_class class,
		      int weight, double now);
/* As in turns.h, for the process @id; unknown ones are ignored. */
void parties_leave(struct parties *p, uint32_t id, double now);
void parties_need(struct parties *p, uint32_t id, int gpu, uint64_t mapped, uint64_t total,
		  double now);
void parties_shown(struct parties *p, uint32_t id, int gpu, uint64_t bytes, double asked,
		   double now);
/* Of a job with several processes no context goes: they would run beside each other. */
void parties_context_after(struct parties *p, uint32_t id, double ms);
void parties_context(struct parties *p, uint32_t id, int gpu, uint64_t bytes, double now);
void parties_restored(struct parties *p, uint32_t id, bool out, double now);
void parties_want(struct parties *p, uint32_t id, double now);
void parties_idle(struct parties *p, uint32_t id, bool idle, double now);
double parties_idle_limit(struct parties *p, uint32_t id);
/*
 * @waits_alone: it has its lease, but not all of its memory, and waits for that by itself, as after a
 * resume.
 */
void parties_paused(struct parties *p, uint32_t id, bool paused, bool waits_alone, double now);
/* The process is to stop: all of its job's memory is taken, and comes back only after it goes on. */
void parties_stops(struct parties *p, uint32_t id, bool stops, double now);
/* True if all is taken of the job of a process that is to stop. */
bool parties_may_stop(struct parties *p, uint32_t id);
/* A process that is alone in its job; see turns_aside(). */
void parties_aside(struct parties *p, uint32_t id, double now);
/* True if the process does not run, for its turn. */
bool parties_is_out(struct parties *p, uint32_t id);
void parties_grow(struct parties *p, uint32_t id, uint32_t serial, int gpu, uint64_t bytes,
		  double now);
void parties_pinned(struct parties *p, uint32_t id, uint32_t serial, double now);
/* The allocation waits no more. */
void parties_forget(struct parties *p, uint32_t id, uint32_t serial, double now);
/* Others of its job that are out are to come back, too. */
void parties_ends(struct parties *p, uint32_t id, double now);
void parties_freed(struct parties *p, uint32_t id, uint64_t bytes, double now);
void parties_mapped(struct parties *p, uint32_t id, uint64_t bytes, double now);
void parties_ended(struct parties *p, uint32_t id, enum turns_end end, double now);
void parties_give(struct parties *p, uint32_t id, double now);

/* A "held" or a "comms" line of a process. Returns 0 or -EBADMSG. */
int parties_take(struct parties *p, uint32_t id, const struct line *line, double now);

/* It did not get the pact of a PARTY_PACT: all of its job get another one, a second later at the earliest. */
void parties_lacks_pact(struct parties *p, uint32_t id);

/*
 * Call @give for each order that is to be carried out now. @give must not call parties_*(), except
 * parties_lacks_pact().
 */
void parties_decide(struct parties *p, double now, void (*give)(const struct party_order *, void *),
		    void *arg);
/* As turns_next(). */
double parties_next(struct parties *p, double now);

/* As turns_look(), with the bytes of the process itself; @view->waits_for is a process. */
bool parties_look(struct parties *p, uint32_t id, double now, struct turns_view *view);

/* True if @id owes no answer: it waits for other processes of its job. */
bool parties_waits(struct parties *p, uint32_t id);

/* Assert what is said above, and turns_check(). */
void parties_check(struct parties *p);

#endif
