/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOLD_H
#define CUDAW_HOLD_H
/*
 * The exchange between the control thread, which acts for the command that coordinates several
 * processes (protocol.h), and the engine's thread (quiet.h), in the first phase of a pause of
 * processes that wait for each other on the GPU, and in the last phase of their resume. The engine
 * reports whether the GPU is idle, and gets orders. Each order to step has one answer, and so has the
 * last of several orders to reach targets. The engine also reports a GPU that becomes idle later, a
 * process that goes beyond a target, and every now and then one that is on its way. In a resume the
 * report is that the memory is back, and the order is to commit.
 */
#include "checkpoint/ledger/ranks.h"

#include <pthread.h>
#include <stdbool.h>

struct hold_report {
	bool runs;            /* it is on its way to its targets: the rest says nothing */
	bool drained;         /* no call is inside, the GPU is idle, and it stays so */
	unsigned int came;    /* calls that the last step let in */
	unsigned int reached; /* the number of the last order to reach targets; 0: there was none */
};

struct hold_order {
	unsigned int step;  /* let this many calls in; 0: none */
	bool commit;        /* go on */
	unsigned int reach; /* the number of the order to reach the targets; 0: there is none */
	struct ranks_target targets[RANKS_COMMS];
	size_t ntargets;
};

/* All fields are under lock. */
struct hold {
	pthread_mutex_t lock;
	pthread_cond_t ordered;
	struct hold_order order;
	struct hold_report report;
	bool reported; /* report is new */
	void (*wake)(void);
};

/* For the control thread. */

/* Before the engine begins. The engine's thread calls @wake for each report. */
void hold_init(struct hold *hold, void (*wake)(void));
void hold_give_order(struct hold *hold, const struct hold_order *order);
/* True if there is a new report. Only the latest is kept. */
bool hold_take_report(struct hold *hold, struct hold_report *report);

/* For the engine's thread. */

void hold_say(struct hold *hold, const struct hold_report *report);
/*
 * The order that arrives within @wait_ms. False if none does. Later targets take the place of those
 * before; a step ends an order to reach targets that came before it.
 */
bool hold_take_order(struct hold *hold, double wait_ms, struct hold_order *order);

#endif
