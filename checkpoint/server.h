/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SERVER_H
#define CUDAW_SERVER_H
/*
 * The control socket's side of the control thread: clients, their requests (protocol.h) and the
 * answers. All calls are made by the control thread, but for server_close().
 */
#include "checkpoint/engine.h"
#include "checkpoint/hold.h"

#include <poll.h>
#include <stdbool.h>

#define SERVER_FDS 33 /* the listening socket and 32 clients; more wait in the kernel's queue */

/* Listen. Without a socket (an unusable folder, said once) signals still work. */
void server_init(void);

/* Put what to wait for in @fds, at most SERVER_FDS, and return how many. */
int server_poll_fds(struct pollfd *fds);

/* Handle what poll() found in the same @fds. */
void server_handle(const struct pollfd *fds, int count);

/* True while a client waits for a pause or a resume to end. */
bool server_has_waiters(void);

/* Tell the waiting clients how far the operation is. */
void server_send_progress(const struct engine_progress *progress);

/* Tell those who wait for a resume that the program is about to run on, and may end at once. */
void server_send_ready(void);

/* Tell the client that holds the job. */
void server_send_report(const struct hold_report *report);

/*
 * An operation ended with @result: answer those who waited for it (@paused: for a pause). With a
 * NULL result, answer those who wait for the state that the job is in already.
 */
void server_finish(bool paused, const struct engine_result *result);

/* The same of a trim. */
void server_finish_trim(const struct engine_result *result);

/* The same of a snapshot. */
void server_finish_snapshot(const struct engine_result *result);

/*
 * Answer those who said that a snapshot is done: NULL: the job has resumed, or stays paused, as its
 * state says; else @result says why it could not.
 */
void server_finish_done(const struct engine_result *result);

/* Close all descriptors: in the child of a fork, or where there is no control thread. */
void server_close(void);

#endif
