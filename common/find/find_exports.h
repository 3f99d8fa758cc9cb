/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_EXPORTS_H
#define CUDAW_FIND_EXPORTS_H
/* The functions of a shared library that is not loaded, from its file. */

/*
 * Call @visit with the name of each symbol that the library at @path defines. Returns 0, -ENOMEM, -ENOENT if the file
 * cannot be read, or -EBADMSG if it is no shared library with a table of its symbols: nothing was visited.
 */
int find_exports(const char *path, void (*visit)(const char *name, void *arg), void *arg);

#endif
