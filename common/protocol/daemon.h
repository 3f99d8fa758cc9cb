/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DAEMON_H
#define CUDAW_DAEMON_H
/*
 * Where cudawd listens, and connecting to it. CUDAW_TURNS (settings.h) says which daemon is meant:
 *
 *	user		RUNDIR/cudawd.sock, of the user who runs the job
 *	node		DAEMON_NODE, of the machine
 *	/PATH		any other socket
 *
 * This module keeps no state and prints nothing.
 */
#define DAEMON_NAME     "cudawd.sock"
#define DAEMON_NODE_DIR "/run/cudaw"
#define DAEMON_NODE     DAEMON_NODE_DIR "/" DAEMON_NAME

/*
 * Connect to the daemon that @which means, if it belongs to the caller's user or to root. Returns a
 * non-blocking, close-on-exec descriptor, or a negative errno with *@why set: -ENOENT or
 * -ECONNREFUSED if there is no daemon, -EPERM if it belongs to another user, -EAGAIN if too many
 * callers already wait. Nothing blocks.
 */
int daemon_connect(const char *which, const char **why);

#endif
