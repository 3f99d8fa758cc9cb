/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_CACHE_H
#define CUDAW_FIND_CACHE_H
/* The dynamic loader's cache of libraries, as ldconfig writes it. */
#include <stddef.h>

#define FIND_CACHE "/etc/ld.so.cache"

/*
 * Call @visit for each path that FIND_CACHE has for @soname. A cache that is missing or unreadable
 * has none. Returns 0 or -ENOMEM.
 */
int find_cache_visit(const char *soname, void (*visit)(const char *path, void *arg), void *arg);

/*
 * Call @visit for each path that a cache of @size bytes has for @soname. Returns 0, or -EBADMSG if
 * the bytes are not a cache for this kind of machine. Nothing outside @data is read. Entries that
 * point outside it are skipped.
 */
int find_cache_lookup(const void *data, size_t size, const char *soname,
		      void (*visit)(const char *path, void *arg), void *arg);

#endif
