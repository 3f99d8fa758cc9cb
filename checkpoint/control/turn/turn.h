/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TURN_H
#define CUDAW_TURN_H
/*
 * The job's side of cudawd, which lets jobs take turns on a GPU (conf_file_daemon(), protocol.h). When the
 * process first has GPU memory, or finds none, it connects to the daemon and introduces itself. The
 * connection is then a client of server.h that has the lease: yield and room come as from any other
 * client. Beside them, this module
 *	- reports how much GPU memory the job has, and how much it needs to run,
 *	- says when the job wants to run and has no lease,
 *	- while the daemon asks for it, says when the job makes no calls,
 *	- passes on allocations that wait for room (growth.h), and the answers to them.
 *
 * Nothing waits for the daemon, except such allocations. Without it, or if it goes, the job runs as
 * if there were none to join, and tries to reach it from time to time. A process that cannot stop,
 * because processes that the daemon does not know wait for its kernels or use its memory, leaves for
 * some seconds.
 *
 * Only the control thread calls it, except turn_init() and turn_after_fork().
 */
#include <stdbool.h>

struct client;
struct request;

/* Before the control thread begins. @wake is wake_up(). */
void turn_init(void (*wake)(void));
void turn_after_fork(void);

/* True if @c is the connection to the daemon. */
bool turn_is_daemon(const struct client *c);

/* Why the job takes no turns though it is to; empty: it does, or has not tried yet. */
const char *turn_why_not(void);

/* True if a job that is out has something to do, and the daemon knows it. */
bool turn_is_asked_for(void);

/* Who has the memory that the job waits for, as the daemon says: "8234 (second)"; empty: not known. */
const char *turn_behind(void);

/* Why the job gets no turn now: "needs 60.0 GiB, and at most 50.0 GiB are there"; empty: it may get one. */
const char *turn_unfit(void);

/* A line of the daemon. False: it is a request, as of other clients. */
bool turn_take(const struct request *r);

/* True if the daemon has ended the last connection by a word: the job goes on without turns. */
bool turn_let_go(void);

/* The program handles SIGTERM: it is to get its turn before others, if it has none. */
void turn_ends(void);

/* True if the job takes turns. */
bool turn_is_on(void);

/*
 * The process is to stop, so that the daemon takes the memory of its job, and gives none before all of its
 * processes go on. False if the job takes no turns.
 */
bool turn_stops(bool stops);

/*
 * An operation has ended, and how much it has moved is said: of a yield, say how much of the memory is left on each GPU.
 * The rest of what is said of its end follows.
 */
void turn_gave(void);

/* True if the daemon has done so. */
bool turn_may_stop(void);

/* True once after the daemon has continued this process, which was stopped, so that it gives its memory. */
bool turn_take_rescue(void);

/* After the lines and events of this turn of the control thread: say what is new. */
void turn_look(void);

/* How long to sleep at most when nothing happens; -1: no limit. */
double turn_patience_ms(void);

#endif
