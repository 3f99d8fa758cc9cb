/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_H
#define CUDAW_CONTROL_H
/*
 * Who decides when to pause and to resume: one control thread a process, started at the first
 * successful cuInit() and never before. It sleeps in poll(2) on
 *	- a pipe, written by the signal handlers (signals.h) and by an operation that ends,
 *	- the control socket and its clients (server.h).
 *
 * What is wanted (running or paused) and what is (enum job_state) are kept apart. Signals and
 * requests only change what is wanted, the last one wins; whenever no operation is under way, one
 * is started if the two differ. An operation runs in a thread of its own, so that the control
 * thread can answer "status" and show progress meanwhile. A pause that comes while a resume waits
 * for GPU memory cancels it. What was cancelled and is asked for again before it has ended is begun
 * anew; all who asked for it are answered with what comes of that.
 *
 * A snapshot may want a pause of its own, which ends with it. It is its own as long as nobody else
 * has asked for a pause: then that one holds. Who asks for a snapshot says when it is done, as the
 * process image is made by others; that they have ended is noticed, and means the same.
 *
 * Fork: the child has no control thread and, where CUDA was in use, refuses CUDA calls as the
 * driver does. Exit: calls are refused instead of waiting at a closed gate.
 */
#include "checkpoint/caller.h"
#include "checkpoint/engine.h"
#include "checkpoint/hold.h"
#include "checkpoint/release.h"

#include <stdbool.h>

#define CONTROL_PAUSE_TIMEOUT_MS 30000

/* Start the control thread, once a process; later calls do nothing. Any thread may call it. */
void control_start(const struct cuda_driver *drv);

/* For the server, in the control thread. */

/*
 * Ask for a state. The server answers its clients when control_state() says so. control_choose()
 * says what the pause that was just asked for is to release, where that is not as CUDAW_RELEASE.
 */
void control_want(bool paused, int timeout_ms);
void control_choose(enum release_choice release);

/* Ask for a trim; the same, by server_finish_trim(). */
void control_want_trim(void);

/*
 * Ask for a state, by a pause or a resume that waits, held, for orders (hold.h); give it one. Undo
 * it if it still waits, and nobody has asked for the contrary; or let it go on alone.
 */
void control_want_hold(bool paused, int timeout_ms);
void control_order(const struct hold_order *order);
void control_abort_hold(bool paused);
void control_end_hold(void);

/*
 * Ask for a snapshot, of a job that is paused, or is to be paused for it as by control_want(); the
 * same, by server_finish_snapshot(). Where it is paused for it, or an image is to be made,
 * control_done() follows, or @caller ends; NULL where nobody asked by the socket. -EBUSY where
 * another one is asked for, being written, or to be done.
 */
int control_want_snapshot(const struct snapshot_order *order, int timeout_ms,
			  const struct caller *caller);

/* Call off what control_want_snapshot() was asked for with an image, if it is not written yet. */
void control_abort_image(void);

/*
 * The snapshot in the folder @path, and all that others add to it, is done, or given up: resume
 * from a pause that was its own, else lock the folder where it alone has the job's memory. The
 * same, by server_finish_done(). Nothing where that snapshot has been called off.
 */
void control_done(const char *path);

/* engine_moved(), at once; -EBUSY where an operation is under way. */
int control_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count,
		  struct snapshot_error *error);

/* The state now, with *@progress (may be NULL) set while an operation is under way, else NULL. */
enum job_state control_state(const struct engine_progress **progress);

/* The last pause or resume; code is NULL before the first. */
const struct engine_result *control_last(bool paused);

/* Why the state is what it is; empty where there is nothing to say. */
const char *control_reason(void);

#endif
