/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run by "make docs": copies a page from stdin to stdout, with the table of settings for the lines
 * between one that contains "BEGIN settings" and one that contains "END settings".
 */
#include "tools/command/run/settings_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	bool man = argc == 2 && !strcmp(argv[1], "man"), inside = false, found = false;
	char *line = NULL;
	size_t size = 0;

	if (!man && (argc != 2 || strcmp(argv[1], "markdown"))) {
		fputs("usage: settings_page markdown|man < PAGE\n", stderr);
		return 2;
	}
	while (getline(&line, &size, stdin) > 0) {
		inside = inside && !strstr(line, "END settings");
		if (!inside)
			fputs(line, stdout);
		if (strstr(line, "BEGIN settings")) {
			settings_text_print(stdout, man ? SETTINGS_MAN : SETTINGS_MARKDOWN);
			inside = found = true;
		}
	}
	free(line);
	if (!found || inside)
		fputs("settings_page: expected a line BEGIN settings and a line END settings\n",
		      stderr);
	return !found || inside || fflush(stdout) || ferror(stdout);
}
