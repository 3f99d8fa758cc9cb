/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTSIDE_H
#define CUDAW_OUTSIDE_H
/*
 * Finds things that an image of processes cannot hold, because other processes share them or
 * because they are lost. CRIU names only some of them, with descriptors and inodes, and takes pipes
 * and timers without a message.
 */
#include "tools/process/criu/tcp.h"
#include "tools/process/criu/tree.h"

#include <stdbool.h>

/* A reason. It may be over a moment later if it @passes. Returns whether the next one is wanted. */
typedef bool (*outside_take)(void *arg, const char *why, bool passes);

/*
 * Call @take with each reason until it returns false: TCP connections, Unix sockets and pipes to other processes, or
 * whose other end was closed or is not accepted yet; descriptors sent through a Unix socket and not received yet;
 * netlink messages that nobody has read; GPUs that other processes than the @njobs of @jobs, whose files the driver's
 * checkpoint takes, have open or mapped; working directories that were removed; open or mapped files that have lost
 * their name and have another one; other processes in their sessions or process groups; processes in sessions that no
 * restore could put them into; periodic timers that may expire before CRIU has read them; and what CRIU does not know
 * (io_uring, POSIX message queues, System V IPC). One reason also if there are more processes than @tree holds, or
 * too little memory. Processes and files that are not visible are not checked.
 *
 * The TCP sockets of the processes are added to @ports: those that listen, and the connections. Unless @closable is
 * NULL, connections to other processes are no reason, if the processes of @tree alone have them, all in one network:
 * they replace those in @closable, for tcp_end().
 */
void outside_find(const struct tree *tree, const pid_t *jobs, size_t njobs,
		  struct tcp_sockets *ports, struct tcp_sockets *closable, outside_take take,
		  void *arg);

#endif
