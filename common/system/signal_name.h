/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNAL_NAME_H
#define CUDAW_SIGNAL_NAME_H
/* The signals that settings name. */

/*
 * The signal number for @text: a name with or without SIG, e.g. USR1 or RTMIN+2, or a number. 0 for
 * "none"; -1 for any other text, and for a signal that no process can handle.
 */
int signal_parse(const char *text);

#endif
