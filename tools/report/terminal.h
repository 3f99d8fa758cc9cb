/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TERMINAL_H
#define CUDAW_TERMINAL_H
/* What a terminal can show. */
#include <stdbool.h>

/*
 * Characters in a line of the terminal @fd: as COLUMNS in the environment says, or else the terminal, or else 80. 0: it
 * is not a terminal.
 */
int terminal_width(int fd);

/* Whether @fd is a terminal on which what is shown can be written over. */
bool terminal_can_rewrite(int fd);

#endif
