/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNAL_NAME_H
#define CUDAW_SIGNAL_NAME_H
/* The signals that settings name. */

/*
 * The number that @text means: a name with or without SIG, as USR1 or RTMIN+2, or a number. 0 for
 * "none"; -1 for nonsense, and for a signal that nobody can handle.
 */
int signal_parse(const char *text);

#endif
