/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LINKS_H
#define CUDAW_LINKS_H
/*
 * Looking at a file whose path other users may have a part of, before root opens it there.
 */
#include <limits.h>
#include <sys/stat.h>

/*
 * As stat() of the absolute @path, which only goes through symbolic links that no other user than
 * root can have made: those of root, in directories that root alone may write. 0 or a negative
 * errno; if it is another link, -ELOOP with the link's path in @link, which is "" otherwise.
 *
 * Whoever may write a directory on the way can still put a link there afterwards.
 */
int links_stat(const char *path, struct stat *st, char link[PATH_MAX]);

#endif
