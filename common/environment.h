/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENVIRONMENT_H
#define CUDAW_ENVIRONMENT_H
/*
 * The variables that we read, kept in programs that are not ours. They may change their environment or empty it, also
 * while a thread of ours reads it, which getenv(3) does not allow. So the libraries keep what is there when they are
 * loaded, and what the program has set by its first call of them; a relative path leads from the directory of that
 * time. Later changes, and variables that it has taken out, do not count.
 */
#include "common/settings.h"

#include <limits.h>

/*
 * Keep them; each time adds what is new. It asks getenv(3), so that it does what any library does in its constructor
 * and in the first call. Threads: several may do so at once.
 */
void environment_keep(void);

/*
 * The value of a setting or of another variable that environment.c lists, for good; NULL: it is not set, or the program
 * has rights that its user has not. If nothing was kept, as in programs of ours: of any, as secure_getenv(3).
 */
const char *environment_get(const char *name);

/*
 * What the @value of the setting @id means in any directory: the path that the relative path of a file or directory has
 * here, in @path. If it is none, or too long, @value itself.
 */
const char *environment_from_here(enum setting_id id, const char *value, char path[PATH_MAX]);

#endif
