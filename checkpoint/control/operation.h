/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OPERATION_H
#define CUDAW_OPERATION_H
/*
 * An operation of the engine, in a thread of its own: the control thread begins it, and is woken
 * when it has something to say. From operation_start() until operation_take_end() the results are
 * the operation's thread's; at other times they are the control thread's.
 *
 * All calls are made by the control thread, except operation_see_through() and those of a fork.
 */
#include "checkpoint/control/state.h"

struct cuda_driver;
struct engine_progress;
struct engine_result;
struct hold;
struct snapshot_order;

/* Once, before the first. @wake is called by the operation's thread. */
void operation_init(const struct cuda_driver *drv, void (*wake)(void));

/*
 * Begin @op. @order is the snapshot that it writes, if @options say so; @last_pause is the last
 * one. 0, -ECANCELED as the process exits, or another negative errno: there is no thread to be had.
 */
int operation_start(enum operation op, const struct operation_options *options,
		    const struct snapshot_order *order, const struct engine_result *last_pause);

/* It is to give up, if it still can. */
void operation_cancel(void);

/* How far it is, and how it is held: NULL while it is not. */
const struct engine_progress *operation_progress(void);
struct hold *operation_hold(void);

/* True once after it has ended. Then the results are there: its own, and the snapshot's. */
bool operation_take_end(void);
const struct engine_result *operation_result(void);
const struct engine_result *operation_written(void);

/* The snapshot that it writes, or the last one did. */
const struct snapshot_order *operation_order(void);

/*
 * The program may end as soon as it runs. A resume waits a moment, therefore, for those who wait
 * for that to be told: true while it does, until operation_say_ready().
 */
bool operation_is_ready(void);
void operation_say_ready(void);

/*
 * The process exits: no operation is begun any more. One that is under way is seen through, as the
 * memory that it copies is about to go away. After it, calls of a paused program are refused, as
 * its remaining destructors must get an error, and not wait. Any thread, and exit().
 */
void operation_see_through(void);

/* In the child of a fork. */
void operation_after_fork(void);

#endif
