/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMBERS_H
#define CUDAW_MEMBERS_H
/*
 * The members, here the processes that are connected: what they say (common/protocol/protocol.h) goes through
 * parties.h to the books, and the decisions come back to them. A member that owes an answer and says nothing for so
 * long (CONF_SILENCE), as when it is stopped, is left alone: nobody waits for its answer, and others wait for its
 * memory as for that of a job that runs. With the next thing that it says it is told to join again.
 */
#include "common/gpu/gpu.h"
#include "common/protocol/protocol.h"
#include "common/protocol/rundir.h"
#include "tools/daemon/connections.h"
#include "tools/daemon/turns/turns.h"

#include <stdbool.h>
#include <stddef.h>

struct member_need {
	bool told;
	size_t mapped, total;
	size_t context; /* of its context, as NVML shows; 0: not known */
	size_t out;     /* the same, when it went out; 0: it is not out */
	size_t shown; /* by NVML; what is @mapped beyond that does not count; TURNS_NO_LIMIT: not known */
};

enum member_hand {
	HAND_NONE,
	HAND_OUT, /* it was told to give memory */
	HAND_IN,  /* it was given room */
};

struct member {
	struct connection *connection; /* NULL: a free slot */
	uint32_t id;                   /* in parties.h; 0: not joined yet */
	char job[RUNDIR_ID_SIZE];
	char name[65];     /* empty: none */
	char command[201]; /* cleaned */
	enum turns_class class;
	int weight;
	double context_after; /* milliseconds, as in turns_context_after() */
	bool restored;        /* its context was out when it joined, or before */
	bool released;        /* it still was */
	enum job_state state;
	double state_ms; /* since when */
	struct member_need need[TURNS_GPUS];
	bool waits_alone; /* for memory: it has its lease */
	enum member_hand hand;
	bool drains;     /* its operation has not begun to move memory */
	bool moved;      /* its memory moves, or has moved since it said what it needs */
	double moved_ms; /* the last news of that */
	double still_ms; /* when it last said what it needs after its memory had moved */
	double since_ms; /* of the hand-over under way */
	double heard_ms; /* its last line then, or when a line is to come at the earliest */
	size_t freed;    /* by its last yield */
	size_t told;     /* the part of it that is in what it says it needs */
	size_t room;     /* that it was given last, of HAND_IN */
	uint32_t behind; /* the process that it was told of ("behind"); 0: none */
	size_t needs;    /* more than is there on a GPU, as it was told ("unfit"); 0: it was not */
	bool filled;     /* its next "held" or "end" is that of a fill */
	bool stops;      /* it has said so, and was not told that it may */
	bool idles;      /* Slurm has stopped it as it ran, and all is to be taken of it */
	bool rescued; /* it was stopped before it had given its memory, and was continued for that */
	double short_ms;   /* when it was told last that host memory is short; 0: never */
	double looked_ms;  /* when it was looked whether it is stopped; 0: look at once */
	double stopped_ms; /* when it was first seen so, without a break; 0: it was not */
	bool stuck;        /* it was stopped, and could not be continued, as the log says */
	bool silent; /* it owes an answer, and is left alone: in the books it is a job of its own */
	double kept_ms; /* of a silent one that has room which it has not taken: since when; else 0 */
};

/* Returns 0 or a negative errno. */
int members_init(void);

/* A line of @connection, whose first line was "turns". False: it is malformed. */
bool members_take(struct connection *connection, const struct line *line, double now);

/* @connection has ended. */
void members_leave(struct connection *connection);

/* Tell the members what is decided now. */
void members_decide(double now);

/* Milliseconds until members_decide() is due; negative: not before something happens. */
double members_patience(double now);

/* The next member that has joined, after @previous or the first for NULL; NULL: there are no more. */
const struct member *members_next(const struct member *previous);

/* What the books say of a member. */
void members_look(const struct member *member, double now, struct turns_view *view);

/* The user gives the turn of @member to those who wait. */
void members_give(const struct member *member, double now);

#endif
