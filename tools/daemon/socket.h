/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DAEMON_SOCKET_H
#define CUDAW_DAEMON_SOCKET_H
/*
 * The socket that the daemon listens on: one that systemd has made (sd_listen_fds(3)), one at a
 * path, or that of the user in the runtime directory. The last two are beside a lock file, so that
 * there is one daemon, however many are started.
 */
#include <stdbool.h>

struct daemon_socket {
	int fd;         /* listens, nonblocking */
	bool everybody; /* it is for all users */
	bool users_own; /* it is in the runtime directory */
};

/* Listen at @path, or, for NULL, as above. Returns 0 or a negative errno, after a message. */
int socket_open(const char *path, struct daemon_socket *opened);

/*
 * For a daemon of a user: if its socket is not found at its path any more, with its directory or without, listen there
 * again. @opened has another descriptor then. What cannot be made now is tried at the next call. False: another daemon
 * listens there. Each change is said once. It waits for nothing.
 */
bool socket_look(struct daemon_socket *opened);

/* Remove the socket's name, if we made it. The lock stays until the process ends. */
void socket_remove(void);

#endif
