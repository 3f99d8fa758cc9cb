/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SERVER_H
#define CUDAW_SERVER_H
/*
 * The control socket: connections and lines, nothing else. It knows no request and calls nobody;
 * the control thread asks it for the lines that came (protocol.h), and gives it lines to send.
 *
 * A client keeps its slot until server_sweep(). While lines are handled, server_end() only marks a
 * client, so that a loop over all clients may answer and end any of them.
 *
 * No client waits without a reason. When the table is full, the client that has been silent for the
 * longest time makes room. If all clients wait for an answer, a new one is turned away, and gets
 * the reason as its answer. The same happens when the process has no free descriptor: one is kept
 * in reserve for that.
 *
 * Only the control thread calls it, except server_close().
 */
#include "common/patience.h"
#include "common/protocol/lines.h"
#include "common/system/ownfd.h"

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
	WAITS_DONE,
	WAITS_LEASE, /* it has the lease, or had it: its lines are yields and rooms */
};

struct client {
	bool used;        /* false: the slot is free */
	struct ownfd own; /* its connection */
	unsigned int id;
	bool gone; /* it disconnected, or sent no valid line: handle its other lines, then end it */
	bool ended;   /* the next server_sweep() closes it */
	bool adopted; /* we made the connection: it must not lose a line */
	enum end_code
		refused; /* END_NONE: no; the code of the answer with which it is turned away */
	struct patience silent; /* without a request */
	struct ownfd token;     /* a descriptor that came with its lines, closed with it */
	struct ownfd pact;      /* such a one that is kept beside it */
	struct ownfd memory;    /* likewise */
	bool token_lost;        /* a descriptor came, and no number was free for it */
	struct lines lines;

	/* The control thread's; zero at first. */
	enum server_wait waits;
	bool joined; /* the operation that it waits for is under way */
	bool holds;  /* it holds the job (hold.h): its lines are orders */
	enum {
		AGREED_NOT,
		AGREED_SEEN,
		AGREED
	} agreed;     /* whether its token says that all commit */
	bool follows; /* it hears the same, and has no part in it, as a pact decides (joint.h) */
};

/*
 * Listen. Without a socket signals still work. A failure is logged once, and server_reopen() tries
 * again if a lack of descriptors or memory is the reason.
 */
void server_init(void);

/* Remove the socket's name: at the end of the process, or if nobody would answer. */
void server_unlink(void);

/* In a process image that was started again (ownfd.h): take the listening socket over. */
void server_take_restored(void);

/* True if the program has closed our socket, or if the process is such an image. */
bool server_is_lost(void);

/*
 * If the program has closed our socket, or somebody has removed its name, listen again. Give up the clients
 * whose connections it has closed. True if the program has closed a descriptor of ours.
 */
bool server_reopen(void);

/*
 * A connection that this process has made, to a process that was checked, as one more client. It waits
 * as WAITS_LEASE, and keeps its slot until it disconnects, or does not read what it is sent. NULL:
 * no slot is free; then @fd is closed.
 */
struct client *server_adopt(int fd);

/* Put the descriptors to poll into @fds, at most SERVER_FDS, and return their number. */
int server_poll_fds(struct pollfd *fds);

/* How long to sleep at most when nothing happens. */
double server_patience_ms(void);

/* Read from the @fds that poll() has found ready. With @count 0 read from all clients. */
void server_receive(const struct pollfd *fds, int count);

/*
 * The next client that has not been ended, in the order in which they connected: of requests that have
 * come meanwhile the last one counts. NULL: start; or there is no more.
 */
struct client *server_next(const struct client *previous);

/*
 * The next whole line of @c, as lines_next() has it; NULL: none. After a request there is no further
 * line until it is answered, unless the client holds the job or has its lease.
 */
char *server_line(struct client *c);

/*
 * Send a line. A client that does not read loses the line: it must not hold up the job. One that was
 * adopted is gone then.
 */
void server_say(const struct client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* False: it has not read much of what it was sent. What it need not know is not sent then, so that its answer has room. */
bool server_keeps_up(const struct client *c);

/* Send the last line of an answer, and end @c unless it has the lease. NULL: there is no message. */
void server_answer(const struct client *c, enum end_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The descriptor that came with @c's lines; -1: none, or the program has closed it. */
int server_token(const struct client *c);

/* The client is done: the next server_sweep() closes it. */
void server_end(struct client *c);

/* Close the clients that were ended, and let new ones in. */
void server_sweep(void);

/* Close all descriptors: in the child of a fork, or if there is no control thread. */
void server_close(void);

#endif
