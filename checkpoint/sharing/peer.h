/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHARING_PEER_H
#define CUDAW_SHARING_PEER_H
/*
 * How processes that share GPU memory talk: each listens on a socket PID.peer in the runtime
 * directory, on which others ask one thing for each connection (format.h). Both sides check that the
 * other runs as the same user (SO_PEERCRED).
 *
 * A thread answers, outside the gate and without any lock of the pause engine, so that a process
 * answers whatever its program and its pause do. The thread and the socket are made when the
 * process first shares memory; a process that never does has neither.
 */
#include "checkpoint/sharing/format.h"

#include <stdbool.h>

/*
 * For the thread: answer @request of the process @from, in *@answer, which share_answer_begin() has
 * made. A descriptor put into *@fd is sent along, and closed.
 */
typedef void (*peer_answer_fn)(const struct share_request *request,
			       const struct share_process *from, struct share_answer *answer,
			       int *fd);

/*
 * Begin to answer by @answer, if that has not begun. 0, or a negative errno, the first time after an
 * error message: no other process can reach this one.
 */
int peer_start(peer_answer_fn answer);

/* This process; valid once peer_start() has succeeded. */
const struct share_process *peer_self(void);
bool peer_is_self(const struct share_process *process);

/*
 * Ask @to. 0, with a descriptor in *@fd that the caller closes, or -1 there; or -ESRCH: that process
 * is gone, or has not listened for 3 s; -EAGAIN: it did not answer, e.g. because it is stopped; or
 * another negative errno.
 */
int peer_ask(const struct share_process *to, struct share_request *request,
	     struct share_answer *answer, int *fd);

#endif
