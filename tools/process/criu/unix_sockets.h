/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNIX_SOCKETS_H
#define CUDAW_UNIX_SOCKETS_H
/* The other ends of Unix sockets, by netlink: sock_diag(7). */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A netlink socket for the functions below, which the caller closes; -1 with errno. */
int unix_sockets_open(void);

/* The inode of the peer of the socket @inode; 0: it has none, or the kernel does not tell. */
uint32_t unix_sockets_peer(int netlink, ino_t inode);

/*
 * How many connections to the socket @inode nobody has accepted yet. The inodes of the other ends are in @ends, at most
 * @room; 0: it was closed, or the kernel does not tell.
 */
size_t unix_sockets_waiting(int netlink, ino_t inode, uint32_t *ends, size_t room);

/* The bytes that the connected socket @inode has sent, and the other end has not received yet. */
uint32_t unix_sockets_unread(int netlink, ino_t inode);

/* The path of the socket @inode, or "@" and its abstract name, cleaned; empty: it has no name. */
void unix_sockets_name(int netlink, ino_t inode, char *buf, size_t size);

#endif
