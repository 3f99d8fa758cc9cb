/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SERVER_H
#define CUDAW_SERVER_H
/*
 * The control socket: connections and lines, nothing else. It knows no request and calls nobody;
 * the control thread asks it for the lines that came (protocol.h), and tells it what to send.
 *
 * A client stays where it is until server_sweep(): while lines are handled clients are only marked,
 * by server_end(), so that whoever goes through them may answer and end any of them.
 *
 * Nobody is kept waiting without a reason. When the table is full, the client that has been silent
 * for longest makes room; if all of them wait for an answer, a new one is turned away, which takes
 * the reason in the place of an answer. The same happens when the process has no free descriptor:
 * one is kept in reserve for that.
 *
 * All calls are made by the control thread, except server_close().
 */
#include "common/ownfd.h"
#include "common/protocol.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define SERVER_CLIENTS 32
#define SERVER_SLOTS   (SERVER_CLIENTS + 1) /* one for a client that is turned away */
#define SERVER_FDS     (1 + SERVER_SLOTS)   /* and the listening socket */

/* What a client waits for. */
enum server_wait {
	WAITS_NOT,
	WAITS_PAUSED,
	WAITS_RUNNING,
	WAITS_TRIMMED,
	WAITS_WRITTEN,
	WAITS_DONE
};

struct client {
	bool used;        /* else this slot is free */
	struct ownfd own; /* its connection */
	unsigned int id;
	bool gone;  /* it hung up, or sent what is no line: handle what it leaves, then end it */
	bool ended; /* to be closed by the next server_sweep() */
	const char *refusal; /* not NULL: it is turned away, with this as its end */
	double since_ms;     /* clock_ms(): when it connected */
	struct ownfd token;  /* a descriptor that came with its lines, closed with it */
	bool token_lost;     /* one came, and there was no room for it */
	size_t len;
	char line[PROTOCOL_LINE];

	/* The control thread's; zero at first. */
	enum server_wait waits;
	bool joined; /* an operation is under way that it waits for */
	bool holds;  /* it gives orders until it says commit */
};

/*
 * Listen. Without a socket signals still work. That there is none is said once, and server_reopen()
 * tries again if a lack of descriptors or memory is the reason.
 */
void server_init(void);

/* In a process image that was started again (ownfd.h): the socket that listens is ours. */
void server_take_restored(void);

/* Whether the program has closed our socket, or the process is such an image. */
bool server_is_lost(void);

/*
 * Listen anew where the program has closed our socket, and give up the clients whose connections it
 * has closed. True where the program has closed any of ours.
 */
bool server_reopen(void);

/* Put what to wait for in @fds, at most SERVER_FDS, and return how many. */
int server_poll_fds(struct pollfd *fds);

/* How long to sleep at most when nothing happens; -1: the server does not mind. */
int server_patience_ms(void);

/*
 * Read what poll() found in the same @fds. With @count 0 nothing is known: look everywhere.
 */
void server_receive(const struct pollfd *fds, int count);

/* All clients that have not been ended, the last slot first; NULL: start, or the end. */
struct client *server_next(const struct client *previous);

/*
 * The next whole line of @c, without its newline, valid until the next call; NULL: none. Lines
 * after a request that is to be answered first stay where they are, unless the client holds.
 */
char *server_line(struct client *c);

/* Send a line. A client that does not read loses it: it must not hold up the job. */
void server_say(const struct client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The descriptor that came with @c's lines; -1: none, or the program has closed it. */
int server_token(const struct client *c);

/* Nothing more is expected of @c. */
void server_end(struct client *c);

/* Close those that were ended, and let new ones in. */
void server_sweep(void);

/* Close all descriptors: in the child of a fork, or where there is no control thread. */
void server_close(void);

#endif
