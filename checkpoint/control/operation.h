/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OPERATION_H
#define CUDAW_OPERATION_H
/*
 * An operation of the engine, in a thread of its own. The control thread begins it; the operation
 * wakes the control thread when it is ready or ends. From operation_start() until
 * operation_take_end() the results belong to the operation's thread, at other times to the control
 * thread.
 *
 * Only the control thread calls it, except operation_see_through() and operation_after_fork().
 */
#include "checkpoint/control/state/state.h"

struct cuda_driver;
struct engine_progress;
struct engine_result;
struct hold;
struct ownfd;
struct pact;
struct snapshot_plan;

/* Once, before the first. @wake is called by the operation's thread. */
void operation_init(const struct cuda_driver *drv, void (*wake)(void));

/*
 * Begin @op. @plan is the snapshot to write, if @options say so; @last_pause is the result of the
 * last pause; @pact is that of a joint resume, or NULL. 0; -ECANCELED if the process exits, and this is
 * neither a resume nor a fill; another negative errno if no thread can be started.
 */
int operation_start(enum operation op, const struct operation_options *options,
		    const struct snapshot_plan *plan, const struct engine_result *last_pause,
		    struct pact *pact);

/* The next pause gets the memory file @memory (struct engine_op), in place of one that was offered before. @memory is none then. */
void operation_offer(struct ownfd *memory);

/* Tell it to give up, if it still can. */
void operation_cancel(void);

/* A fill has room for @bytes now. */
void operation_room(size_t bytes);

/* Its progress, and its hold; NULL: it is not held. */
const struct engine_progress *operation_progress(void);
struct hold *operation_hold(void);

/* True once, after it has ended. Then its own result and the snapshot's can be read. */
bool operation_take_end(void);
const struct engine_result *operation_result(void);
const struct engine_result *operation_written(void);
/* The last room that a fill has seen; the bytes that a yield has left on the GPU. */
size_t operation_seen_room(void);
size_t operation_mapped(void);
/* A resume that has failed has left the contexts on the GPU, which were out. */
bool operation_kept(void);

/* The plan of the snapshot that it writes, or of the last one that was written. */
const struct snapshot_plan *operation_plan(void);

/*
 * The program may end as soon as it runs. So a resume waits a moment until the control thread has
 * told the clients that wait: true from then until operation_say_ready().
 */
bool operation_is_ready(void);
void operation_say_ready(void);

/*
 * The calling thread is in exit(). No further operation begins, except a resume or fill: the program's
 * exit handlers may wait for one (gate_exits()). Waits for the end of the operation under way, as the
 * memory that it copies, and the driver, are about to go away; but a resume that waits for GPU memory stays
 * under way, and after GATE_EXIT_MS one that has agreed with others to run, and waits for them. Any thread.
 */
void operation_see_through(void);

/* In the child of a fork. */
void operation_after_fork(void);

#endif
