/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DIRECTORIES_H
#define CUDAW_DIRECTORIES_H
/* The runtime directories in which a process of this user looks for jobs: its own, or for root those of all users. */
#include "common/protocol/rundir.h"

#include <limits.h>
#include <stdbool.h>

/* The directory may not exist; @owner may be RUNDIR_ANYONE. */
typedef void (*directories_take)(void *arg, const char *path, uid_t owner);

/*
 * Call @take for each of them. *@all: those of all users, of which there may be more later. Else @path gets the path
 * of the one. Returns 0, or a negative errno with @path and *@why set, as rundir_path().
 */
int directories_each(directories_take take, void *arg, bool *all, char path[PATH_MAX],
		     const char **why);

#endif
