/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_INSIDE_H
#define CUDAW_INSIDE_H
/*
 * Looks at a process from outside: its mapped files, its environment, its sockets, and files as it
 * sees them (/proc/PID/root), which may be in another mount namespace. All that is found there is
 * the choice of the process's user. Nothing is written, locked or removed there, and no namespace
 * is entered. Paths are followed inside the root directory of the process only, through no symbolic
 * link. Any of these functions may hang, on a mount of that user's or on memory that such a mount
 * backs: call them in a child with a time limit (limited.h).
 */
#include "tools/process/process.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether our library is mapped in the process. INSIDE_LIKELY: a regular file named libcuda.so.1
 * that is not in a directory of ours. The driver's own file has another name, to which a symbolic
 * link of this name leads.
 */
enum inside_face { INSIDE_NONE, INSIDE_LIKELY, INSIDE_FACE };

/*
 * The drivers in a process with our library. Our control thread tells that we have opened one of them. A process
 * without that thread has opened it itself, or has made calls to us, but no successful cuInit().
 */
struct inside_drivers {
	char past[512];      /* cleaned: the one past us, or two of which one is; empty: none is */
	unsigned long where; /* the sum of their addresses, the same in a forked child */
};

enum inside_face inside_face(pid_t pid, struct inside_drivers *drivers);

/* The beginning of its command line, cleaned (format_copy()); empty: not known. */
void inside_command(pid_t pid, char *buf, size_t size);

/*
 * The directories in which a process of the network namespace of @process listens on a socket that
 * has the name of @process's own: at most @max, in @directories. Returns their number. A path that
 * the kernel does not know (it was bound through /proc/thread-self/fd) is given as "".
 */
#define INSIDE_PATH 108 /* the room in sockaddr_un */

size_t inside_listens(const struct process *process, char (*directories)[INSIDE_PATH], size_t max);

/*
 * Connect to the job's socket of @process in the directory @path of its file system, which must
 * belong to its user and be closed to others. The connection is made as that user. Returns a
 * descriptor as rundir_connect() does, or a negative errno. -ENOTSOCK: the file is no socket.
 */
int inside_connect(const struct process *process, const char *path);

#endif
