/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_VERIFY_H
#define CUDAW_VERIFY_H
#include "checkpoint/snapshot/open.h"

/*
 * Read all chunks of GPU memory and compare them with their checksums, with a progress line. 0 or a
 * negative errno, with @error.
 */
int verify_memory(const struct snapshot *s, const char *path, struct snapshot_error *error);

#endif
