/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENVIRONMENT_H
#define CUDAW_ENVIRONMENT_H
/*
 * The environment, kept in programs that are not ours. They may change it or empty it, also while a thread of
 * ours reads it, which getenv(3) does not allow. So the libraries keep what is there when they are loaded,
 * and what the program has set by its first call of the driver. Later changes, and variables that it has
 * taken out, do not count.
 */

/* Keep the environment. From the program's thread, which alone may change it then; each time adds what is new. */
void environment_keep(void);

/*
 * The value of the variable, for good; NULL: it is not set, or the program has rights that its user has not.
 * If nothing was kept, as in programs of ours, as secure_getenv(3).
 */
const char *environment_get(const char *name);

#endif
