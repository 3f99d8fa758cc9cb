/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHORTAGE_H
#define CUDAW_SHORTAGE_H
/* Errors that may pass, and that say nothing about the file or process in question. */
#include <errno.h>
#include <stdbool.h>

/* True if @error, a negative errno, is a lack of descriptors or memory: retry later. */
static inline bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

#endif
