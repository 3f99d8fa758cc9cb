/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PEERS_H
#define CUDAW_PEERS_H
/*
 * The connections of the daemon: members and commands. Everything is bounded: their number, the
 * length of their lines, and what is kept for a peer that does not read. A peer that says nothing
 * at first is dropped after PEER_SILENT_MS.
 *
 * Whoever connects is known by SO_PEERCRED. The daemon of a user takes this user and root. That of a
 * machine takes from each user but root as many jobs as its settings say (CONF_JOBS_PER_USER), and
 * beside them PEER_COMMANDS connections. The last PEERS_KEPT places are for the daemon's user and root:
 * others are turned away, for which they have such a place for a moment.
 */
#include "common/protocol.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PEERS_MAX      256
#define PEERS_KEPT     8
#define PEER_SILENT_MS 5000
#define PEER_UNREAD    (256 << 10) /* bytes */
#define PEER_COMMANDS  8

struct member;

enum peer_kind {
	PEER_NEW,
	PEER_MEMBER,
	PEER_COMMAND,
	PEER_LAUNCHED, /* a process whose program may become a member; it needs no connection */
};

struct peer {
	bool used;
	int fd;      /* -1: closed */
	int pidfd;   /* -1: not known */
	bool ending; /* to be closed when all is sent */
	bool gone;
	enum peer_kind kind;
	uid_t uid;
	pid_t pid; /* 0: in a namespace that we do not see */
	double since_ms;
	char line[PROTOCOL_LINE];
	size_t len;
	char *unsent;
	size_t unsent_len;
	struct member *member; /* of a PEER_MEMBER, and of one that introduces itself */
	bool follows;          /* PEER_COMMAND: it gets events as they come */
	uint64_t event;        /* the last one that it got */
};

/* What is done with a peer's lines, and with the end of one that has a member. */
struct peer_actions {
	void (*line)(struct peer *peer, char *line);
	void (*gone)(struct peer *peer);
};

/* Take connections of @listener. @everybody: not only of the same user. */
void peers_init(int listener, bool everybody, const struct peer_actions *actions);

/* Put what poll(2) is to wait for into @fds; returns how many, at most PEERS_POLL. */
#define PEERS_POLL (2 * PEERS_MAX + 1)
int peers_poll(struct pollfd fds[PEERS_POLL]);

/* After poll(2): let peers in, read their lines, write what they can take, and drop those that end. */
void peers_handle(const struct pollfd *fds, int count, double now);

/* Milliseconds until a silent peer is to be dropped; negative: there is none. */
double peers_patience(double now);

/* Send a line to @peer. One that does not read is dropped. */
void peer_say(struct peer *peer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Close the connection of @peer when all is sent. It gets no more lines, and none of it is read. */
void peer_end(struct peer *peer);

/* Whether the user of @peer, which is no job yet, may have one more. */
bool peer_may_be_job(const struct peer *peer);

/* The next peer after @previous, or the first for NULL; NULL: there is none. */
struct peer *peers_next(const struct peer *previous);

#endif
