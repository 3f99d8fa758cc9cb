/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TCP_H
#define CUDAW_TCP_H
/*
 * The TCP sockets of network namespaces, by /proc/PID/net/tcp and tcp6 (proc_net_tcp(5)). CRIU takes connections
 * whose both ends are in its image, with the data on the way [CRIU 4.2, seen].
 *
 * CRIU can hold back the packets of the connections meanwhile (--network-lock). If it is killed, its rules stay, and
 * nothing passes any more [nftables, CRIU 4.2, seen]. So it runs without, once all processes are stopped and nothing is on
 * its way. It must not be for one more reason: if the other end has no room for data, and CRIU is to restore the first
 * end, it sends them to one that is not there yet, and fails [CRIU 4.2, seen].
 */
#include "tools/process/criu/tree.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tcp_end {
	struct in6_addr address; /* of IPv4 as ::ffff:1.2.3.4 */
	uint16_t port;
};

/* The states of the kernel's include/net/tcp_states.h that matter here. */
enum tcp_state {
	TCP_IS_OPEN = 1,
	TCP_IS_NEW = 2,
	TCP_IS_COMING = 3,
	TCP_IS_ENDED = 6,
	TCP_IS_CLOSED = 7,
	TCP_IS_LEFT = 8, /* the other end is closed, or will send no more */
	TCP_IS_LISTENING = 10,
};

struct tcp_socket {
	struct tcp_end local, remote;
	unsigned int state;
	unsigned int unsent; /* bytes, and those that the other end has not confirmed */
	unsigned int unread; /* bytes; the end of the other one counts as one */
	ino_t inode; /* 0: no process has it, as one that is not accepted yet, or was closed */
};

/* Zeroed before the first use; the caller frees @all. */
struct tcp_sockets {
	struct tcp_socket *all;
	size_t n, room;
	bool short_of_memory; /* or of descriptors: some are missing */
};

void tcp_add(struct tcp_sockets *sockets, const struct tcp_socket *socket);

/*
 * Call @look with the sockets of each network namespace in which processes of @tree are, until it returns false. False
 * if there is too little memory for some, or no descriptor.
 */
bool tcp_networks(const struct tree *tree,
		  bool (*look)(void *arg, const struct tcp_sockets *sockets), void *arg);

/* Whether one of @sockets, which all belong to processes, is a connection. */
bool tcp_are_connected(const struct tcp_sockets *sockets);

/* Whether it is of a connection that no process has accepted yet. */
bool tcp_is_waiting(const struct tcp_socket *socket);

/* The other end of @socket, which is in the same namespace; NULL: it is elsewhere, or gone. */
const struct tcp_socket *tcp_peer(const struct tcp_sockets *sockets,
				  const struct tcp_socket *socket);

/* The one between the same addresses as @socket; NULL: there is none. */
const struct tcp_socket *tcp_same(const struct tcp_sockets *sockets,
				  const struct tcp_socket *socket);

/* Whether @listening gets connections to @local. */
bool tcp_serves(const struct tcp_socket *listening, const struct tcp_end *local);

/* "127.0.0.1:80", "[::1]:80"; and the reverse, false: it is none. */
#define TCP_TEXT_SIZE (INET6_ADDRSTRLEN + 16)

const char *tcp_text(const struct tcp_end *end, char text[TCP_TEXT_SIZE]);
bool tcp_parse(const char *text, struct tcp_end *end);

/*
 * Wait until nothing is on its way in the connections @sockets of @tree, whose processes are stopped. 0; -EAGAIN if
 * something still is, for which the other end has no room; -ENOMEM.
 */
int tcp_rest(const struct tree *tree, const struct tcp_sockets *sockets);

/*
 * Whether the other end of the connection @socket, in the same namespace @peer or NULL, was closed. Nobody can see then
 * which process had it.
 */
bool tcp_is_left(const struct tcp_socket *socket, const struct tcp_socket *peer);

/*
 * Whether the connection @socket, whose other end (as above) no process of the job has, may be closed for a snapshot:
 * it is made; and if the other end was closed, perhaps by a process of the job, all that was sent is read, and its end.
 */
bool tcp_may_end(const struct tcp_socket *socket, const struct tcp_socket *peer);

/*
 * Close those of @sockets that are connections of @tree, whose processes are stopped: the other ends see a reset, and
 * the processes a socket that is not connected (ENOTCONN, or ECONNRESET once). Each one adds 1 to *@closed. 0 or a
 * negative errno, as tcp_repair(); -EAGAIN, and none is closed, if by now tcp_may_end() is false of one: the other end
 * was closed since it was looked at, and would not see the reset.
 */
int tcp_end(const struct tree *tree, const struct tcp_sockets *sockets, size_t *closed);

/*
 * Switch the repair mode of all connections of @tree on or off (TCP_REPAIR, tcp(7)), as far as this process may. CRIU
 * leaves it on if it is killed, and the processes could neither send nor receive. A connection that is closed in that
 * mode tells nobody, and its addresses are free at once. 0; -EPERM if one is not as it should be, which takes
 * CAP_NET_ADMIN; else -EACCES if a socket cannot be looked at.
 */
int tcp_repair(const struct tree *tree, bool on);

#endif
