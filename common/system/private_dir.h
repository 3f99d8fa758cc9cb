/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PRIVATE_DIR_H
#define CUDAW_PRIVATE_DIR_H

/*
 * mkdirat(2) of a directory for its user alone (0700). The umask is the program's: it may take rights from the user,
 * who could not enter the directory then, and setting another would affect other threads. 0 or a negative errno.
 */
int private_dir_make(int dir, const char *path);

#endif
