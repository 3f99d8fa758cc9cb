/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_UNIX_SOCKETS_H
#define CUDAW_UNIX_SOCKETS_H
/* The other end of a Unix socket, by netlink: sock_diag(7). */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A netlink socket for the functions below, which the caller closes; -1 with errno. */
int unix_sockets_open(void);

/* The inode of the peer of the socket @inode; 0: it has none, or the kernel does not tell. */
uint32_t unix_sockets_peer(int netlink, ino_t inode);

/* The path of the socket @inode, or "@" and its abstract name, cleaned; empty: it has no name. */
void unix_sockets_name(int netlink, ino_t inode, char *buf, size_t size);

#endif
