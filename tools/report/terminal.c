/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/terminal.h"

#include <limits.h>
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

bool terminal_can_rewrite(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && (!term || strcmp(term, "dumb") != 0);
}
