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

/* Lines of the terminal @fd; 0: it is not a terminal, or does not know. */
int terminal_height(int fd);

/*
 * Begin what replaces all that was printed before on stdout: on a terminal the screen is cleared, elsewhere an empty line
 * parts it from what came before, except the first time.
 */
void terminal_page(void);

/* Whether @fd is a terminal on which what is shown can be written over. */
bool terminal_can_rewrite(int fd);

#endif
