/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHORTAGE_H
#define CUDAW_SHORTAGE_H
/* Errors that may pass, and that say nothing about the file or process that was asked for. */
#include <errno.h>
#include <stdbool.h>

/* True if @error, a negative errno, is a lack of descriptors or of memory: ask again later. */
static inline bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

#endif
