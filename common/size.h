/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIZE_H
#define CUDAW_SIZE_H
/* The sizes that settings name. */
#include <stdbool.h>
#include <stddef.h>

/*
 * A number of bytes with an optional K, M, G or T; false, and *@size untouched, for anything else,
 * or for more than a size_t holds.
 */
bool size_parse(const char *text, size_t *size);

#endif
