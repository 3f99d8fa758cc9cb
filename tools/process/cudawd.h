/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CUDAWD_H
#define CUDAW_CUDAWD_H
/*
 * cudawd, as the command calls and starts it: the one that jobs join (conf_file_daemon()), or else
 * the user's own one. common/protocol/protocol.h has the lines.
 */
#include "common/protocol/lines.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define CUDAWD_PROGRAM "cudawd" /* in the directory of the command */
#define CUDAWD_MS      3000     /* for its answer */

/* A line of the answer: one of enum from_daemon. Returns 0, or another value that ends the conversation. */
typedef int (*cudawd_line)(void *arg, const struct line *line);

/*
 * Send @request, and call @line for each line of the answer except "end ok". @limit_ms: from one
 * line to the next. Returns 0; the value that @line returned; or a negative
 * errno: -ECONNREFUSED no daemon answers; -ENOENT, -EACCES, -EBUSY or -ETIME the daemon has answered with "end
 * invalid", "end denied", "end busy" or "end timeout", -EPROTO with another end; -ETIMEDOUT. @where gets the path of
 * the socket.
 */
int cudawd_ask(const char *request, double limit_ms, cudawd_line line, void *arg,
	       char where[PATH_MAX]);

/*
 * The same in parts, for answers that go on while others are awaited, too. cudawd_open() returns a descriptor or a
 * negative errno. When it can be read, cudawd_hear() calls @line for what has come; @lines is zero at first. It returns
 * -EAGAIN while the answer goes on, else as cudawd_ask() does.
 */
int cudawd_open(const char *request, char where[PATH_MAX]);
int cudawd_hear(int fd, struct lines *lines, cudawd_line line, void *arg);

/* Print why cudawd_ask() failed with @err, at the socket @where. Returns the exit code. */
int cudawd_explain(int err, const char *where);

/*
 * Tell the user's own daemon that the program of this process may become a member, and start the
 * daemon if none answers. Returns 0, or a negative errno with *@why set.
 */
int cudawd_launch(const char **why);

/* What starts the daemon that jobs join, for messages. */
const char *cudawd_starter(void);

#define CUDAWD_WHY (PATH_MAX + 256)

/* True if jobs are to join a daemon, as a variable or a file says, and none answers; @why then says so. */
bool cudawd_is_missing(char why[CUDAWD_WHY]);

#endif
