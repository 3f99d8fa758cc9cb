/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHARERS_H
#define CUDAW_SHARERS_H
/*
 * How processes that share GPU memory talk: each listens on a socket PID.sharing in the runtime
 * directory, on which others ask one thing for each connection (messages.h). Both sides check that the
 * other runs as the same user (SO_PEERCRED), and in the same PID namespace. If the directory cannot be used,
 * the socket has an abstract address, which is made of the instance: programs share memory without a
 * directory. Processes that have a directory in common need no network namespace in common.
 *
 * A thread answers, outside the gate and without any lock of the pause engine, so that a process
 * answers whatever its program and its pause do. The thread and the socket are made when the
 * process first shares memory; a process that never does has neither.
 *
 * A process can lose its socket and live: its program closes all descriptors, somebody removes the name or
 * the directory. The thread makes the socket again, once a second if need be. It is no proof of an end that
 * a process cannot be reached, since it still has the memory; sharers_is_gone() has the proof.
 */
#include "checkpoint/sharing/messages.h"
#include "common/patience.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * For the thread: answer @request of the process @from, in *@answer, which sharing_answer_begin() has
 * made. A descriptor put into *@fd is sent along, and closed.
 */
typedef void (*sharers_answer_fn)(const struct sharing_request *request,
				  const struct sharing_process *from, struct sharing_answer *answer,
				  int *fd);

/* For the thread, about once a second while nobody asks. */
typedef void (*sharers_idle_fn)(void);

/*
 * Begin to answer by @answer, if that has not begun. 0, or a negative errno, the first time after an
 * error message: no other process can reach this one.
 */
int sharers_start(sharers_answer_fn answer, sharers_idle_fn idle);

/* This process; valid once sharers_start() has succeeded. */
const struct sharing_process *sharers_self(void);
const char *sharers_job(void); /* the ID of its job */
bool sharers_is_self(const struct sharing_process *process);

/*
 * True if the process has ended, or has become another program: its memory is given back. False also if that
 * cannot be known.
 */
bool sharers_is_gone(const struct sharing_process *process);

/*
 * Ask @to. 0, with a descriptor in *@fd that the caller closes, or -1 there; or -ESRCH: that process
 * is gone; -EAGAIN: it did not answer, e.g. because it is stopped; or another negative errno: it could not be
 * reached now. It waits for an answer only, 1 s of @patience.
 */
int sharers_ask(struct patience *patience, const struct sharing_process *to,
		struct sharing_request *request, struct sharing_answer *answer, int *fd);

/*
 * The two halves of it: the first one does not wait, and returns a connection, or an error. The second one takes
 * either, and closes the connection; close() gives the answer up. The wait is 1 s from @asked_ms of @patience on,
 * the moment of the first half: those that do not answer are waited for at the same time.
 */
int sharers_begin(const struct sharing_process *to, struct sharing_request *request);
int sharers_end(struct patience *patience, double asked_ms, int with, struct sharing_answer *answer,
		int *fd);

/* What such an @error other than -ESRCH says of the process, in words that follow its PID. */
void sharers_why(const struct sharing_process *process, int error, char *text, size_t size);

#endif
