/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FACES_H
#define CUDAW_FACES_H
/* Where the command finds the libraries that cudaw puts into jobs. */
#include <stddef.h>

/*
 * The directory of our libraries: ../lib/cudaw-VERSION, relative to the directory of this command.
 * Returns 0 or a negative errno.
 */
int faces_directory(char *path, size_t size);

/* Why the loader cannot preload the library at @path; NULL: it can. */
const char *not_preloadable(const char *path);

#endif
