/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOLD_H
#define CUDAW_HOLD_H
/*
 * The first phase of a pause of several processes that wait for each other on the GPU, and the last
 * one of their resume: what the control thread, for the command that coordinates them (protocol.h),
 * and the engine's thread (quiet.h) say to each other. The engine reports whether the GPU is idle;
 * it gets orders. Each order to step has one answer; a GPU that comes to rest later is reported as
 * well. In a resume the report is that the memory is back, and the order is to commit.
 */
#include <pthread.h>
#include <stdbool.h>

struct hold_report {
	bool drained;      /* no call is inside, the GPU is idle, and it stays so */
	unsigned int came; /* calls that the last step let in */
};

struct hold_order {
	unsigned int step; /* let so many calls in; 0: none */
	bool commit;       /* go on */
};

/* All fields are under lock. */
struct hold {
	pthread_mutex_t lock;
	pthread_cond_t ordered;
	struct hold_order order;
	struct hold_report report;
	bool reported; /* and not taken yet */
	void (*wake)(void);
};

/* For the control thread. */

/* Before the engine begins; @wake is called, by its thread, when there is a report. */
void hold_init(struct hold *hold, void (*wake)(void));
void hold_give_order(struct hold *hold, const struct hold_order *order);
/* True where there is a new report; the last one counts. */
bool hold_take_report(struct hold *hold, struct hold_report *report);

/* For the engine's thread. */

void hold_say(struct hold *hold, const struct hold_report *report);
/* The order that came, after @wait_ms at the most; false where none did. */
bool hold_take_order(struct hold *hold, double wait_ms, struct hold_order *order);

#endif
