/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/terminal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_width(int fd)
{
	const char *columns = getenv("COLUMNS");
	long given = columns ? strtol(columns, NULL, 10) : 0;
	struct winsize win = {0};

	if (!isatty(fd))
		return 0;
	if (given > 0 && given <= INT_MAX)
		return (int)given;
	return ioctl(fd, TIOCGWINSZ, &win) == 0 && win.ws_col ? win.ws_col : 80;
}

int terminal_height(int fd)
{
	struct winsize win = {0};

	return isatty(fd) && ioctl(fd, TIOCGWINSZ, &win) == 0 ? win.ws_row : 0;
}

void terminal_page(void)
{
	static bool later;

	if (terminal_can_rewrite(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
	else if (later)
		putchar('\n');
	later = true;
}

bool terminal_can_rewrite(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && (!term || strcmp(term, "dumb") != 0);
}
