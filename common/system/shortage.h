/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHORTAGE_H
#define CUDAW_SHORTAGE_H
/* Errors that may pass, and that say nothing about the file or process in question. */
#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

/* Short, since the program's calls wait meanwhile. */
#define SHORTAGE_TRIES  40
#define SHORTAGE_TRY_US 5000

/* True if @error, a negative errno, is a lack of descriptors or memory: retry later. */
static inline bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

/* If @error is a shortage, wait a moment, and return true: try again. After SHORTAGE_TRIES of @tries false. */
static inline bool shortage_wait(int error, int *tries)
{
	if (!is_shortage(error) || *tries == SHORTAGE_TRIES)
		return false;
	(*tries)++;
	usleep(SHORTAGE_TRY_US);
	return true;
}

#endif
