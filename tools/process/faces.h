/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FACES_H
#define CUDAW_FACES_H
/* The libraries that cudaw puts into jobs, from the command's side. */
#include <stddef.h>

/*
 * The directory of our libraries, found from where this command lies: ../lib/cudaw-VERSION. Returns
 * 0 or a negative errno.
 */
int faces_directory(char *path, size_t size);

/* Why the loader would not take the library at @path from LD_PRELOAD; NULL where it would. */
const char *not_preloadable(const char *path);

#endif
