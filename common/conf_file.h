/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONF_FILE_H
#define CUDAW_CONF_FILE_H
/*
 * The file that sets up a machine's daemon (tools/daemon/conf.h), and the one key of it that
 * concerns jobs:
 *
 *	[turns]
 *	join = node	jobs join the machine's daemon, unless CUDAW_TURNS says otherwise; off: not
 *
 * Jobs have no parser of such files: this module reads that key, and nothing else of the file. It
 * takes every form of it that the daemon takes (tests/fuzz/conf.c).
 */
#include <stddef.h>

#define CONF_FILE_NODE "/etc/cudaw.conf"
#define CONF_FILE_SIZE (64 << 10) /* the largest one, in bytes */

/*
 * Read the file at @path into *@text, which the caller frees. Returns 0 or a negative errno: -EINVAL
 * it is no regular file, -EFBIG it is too large, -EBADMSG it contains a NUL byte.
 */
int conf_file_read(const char *path, char **text);

/* What @text says of "join": 1 node, 0 off or nothing, -EBADMSG something else, or twice. */
int conf_file_joins(const char *text);

/*
 * The daemon that a job joins, and that commands ask: what CUDAW_TURNS says; if it is not set, "node"
 * if CONF_FILE_NODE says so. NULL: none. The file is read once in each call; one that is missing
 * costs an open(2).
 */
const char *conf_file_daemon(void);

#endif
