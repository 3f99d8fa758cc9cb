/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/options.h"

#include "tools/report/report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int usage_error(const char *name)
{
	fprintf(stderr, "Try 'cudaw %s --help'.\n", name);
	return EXIT_USAGE;
}

int json_option(int argc, char **argv, const char *name, const char *help, bool *json)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		switch (opt) {
		case 'j':
			*json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_DONE;
		default:
			return usage_error(name);
		}
	}
	return -1;
}

bool names_given(int argc, char **argv, const char *what, bool one)
{
	if (optind == argc || (one && argc - optind != 1)) {
		complain(optind == argc ? "expected a %s" : "expected only one %s", what);
		return false;
	}
	for (int i = optind; i < argc; i++)
		if (!*argv[i]) {
			complain("expected a %s, found an empty word", what);
			return false;
		}
	return true;
}

bool seconds_given(const char *option, const char *text, double *ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end != text && (!*end || !strcmp(end, "s")) && seconds >= 0.001 && seconds <= 1e6) {
		*ms = seconds * 1000 + 0.5;
		return true;
	}
	complain("%s %s: expected a number of seconds from 0.001 to 1000000", option, text);
	return false;
}
