/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PIDFD_H
#define CUDAW_PIDFD_H
/*
 * The process at the other end of a Unix socket. SO_PEERCRED says only its PID, which another process may have by
 * now: the first one may have ended, and a child may keep its socket open. SO_PEERPIDFD (Linux 6.5) gives a
 * descriptor of the process itself. Of a listener, it is the process that called listen(2).
 */
#include <stdbool.h>
#include <sys/types.h>

/*
 * A descriptor of the process that has connected @socket, or listens there, above those of the standard streams; it
 * can be read when the process has ended. Before Linux 6.5 of the process that has the PID @pid now.
 * Returns a negative errno if there is none; -ESRCH: the process has ended.
 */
int pidfd_of_peer(int socket, pid_t pid);

/* False: the process has ended, so that what was read of its PID may be of another one. Linux before 6.5: true. */
bool pidfd_peer_runs(int socket);

#endif
