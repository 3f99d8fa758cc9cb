/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONNECTIONS_H
#define CUDAW_CONNECTIONS_H
/*
 * The connections of the daemon: of members and commands. Everything is bounded: their number, the
 * length of their lines, and what is kept for one that does not read. One that says nothing at first is
 * dropped after CONNECTION_SILENT_MS, or CONNECTION_HURRY_MS while all places that others may have are taken.
 *
 * Whoever connects is known by SO_PEERCRED, and its end by a descriptor of the process (common/processes/pidfd.h).
 * The daemon of a user takes this user and root. That of a machine takes from each user but root as many
 * jobs as its settings say (CONF_JOBS_PER_USER), and beside them CONNECTION_COMMANDS connections. The last
 * CONNECTIONS_KEPT places are for the daemon's user and root: others are turned away, for which they have
 * such a place for a moment.
 */
#include "common/protocol/lines.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONNECTIONS_MAX      256
#define CONNECTIONS_KEPT     8
#define CONNECTION_SILENT_MS 5000
#define CONNECTION_HURRY_MS  500
#define CONNECTION_UNREAD    (256 << 10) /* bytes */
#define CONNECTION_COMMANDS  8

struct member;

enum connection_kind {
	CONNECTION_NEW,
	CONNECTION_MEMBER,
	CONNECTION_COMMAND,
	CONNECTION_LAUNCHED, /* a process whose program may become a member; it needs no connection */
};

struct connection {
	bool used;
	int fd;      /* -1: closed */
	int pidfd;   /* negative: not known */
	bool ended;  /* the process, before it was let in */
	bool ending; /* to be closed when all is sent */
	bool gone;
	enum connection_kind kind;
	uid_t uid;
	pid_t pid; /* 0: in a namespace that we do not see */
	double since_ms;
	struct lines lines;
	char *unsent;
	size_t unsent_len;
	struct member *member; /* of a CONNECTION_MEMBER, and of one that introduces itself */
	bool follows;          /* CONNECTION_COMMAND: it gets events as they come */
	uint64_t event;        /* the last one that it got */
};

/* What is done with a connection's lines, and with the end of one that has a member. */
struct connection_actions {
	void (*line)(struct connection *connection, char *line);
	void (*gone)(struct connection *connection);
};

/* Take connections of @listener. @everybody: not only of the same user. */
void connections_init(int listener, bool everybody, const struct connection_actions *actions);

/* From now on those of another listener. */
void connections_listen(int listener);

/* Put what poll(2) is to wait for into @fds; returns how many, at most CONNECTIONS_POLL. */
#define CONNECTIONS_POLL (2 * CONNECTIONS_MAX + 1)
int connections_poll(struct pollfd fds[CONNECTIONS_POLL]);

/* After poll(2): let connections in, read their lines, write what they can take, and drop those that end. */
void connections_handle(const struct pollfd *fds, int count, double now);

/* Milliseconds until a silent connection is to be dropped; negative: there is none. */
double connections_patience(double now);

/* Send a line to @connection. One that does not read is dropped. */
void connection_say(struct connection *connection, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Send the line @text, of a few bytes, with the descriptor @fd. False: other lines wait to be read, or it is gone. */
bool connection_send(struct connection *connection, const char *text, int fd);

/*
 * Send the last line, and close @connection when all is sent. It gets no more lines, and none of it is read.
 * NULL: there is no message.
 */
void connection_answer(struct connection *connection, enum end_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Whether users connect who need not trust each other. */
bool connections_are_of_everybody(void);

/* Whether the user of @connection, which is no job yet, may have one more. */
bool connection_may_be_job(const struct connection *connection);

/* The next connection after @previous, or the first for NULL; NULL: there is none. */
struct connection *connections_next(const struct connection *previous);

#endif
