/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REPORT_H
#define CUDAW_REPORT_H
/* The results of the command: exit codes, and messages on stderr. */
#include <stdbool.h>

/* Exit codes; documented in the help and in cudaw.1. */
enum {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NO_JOB = 3,
	EXIT_DENIED = 4,
	EXIT_TIMEOUT = 5,
	EXIT_UNSUPPORTED = 6,
	/* Only of cudaw run, as env(1) and timeout(1) have them, and of cudaw restore --wait. */
	EXIT_NO_FACE = 125,
	EXIT_NOT_RESTORED = 125,
	EXIT_CANNOT_RUN = 126,
	EXIT_NOT_FOUND = 127,
};

/*
 * From here on the exit code tells what has become of jobs, and not whether the output was written: nobody who stops
 * reading it ends the command half way (SIGPIPE).
 */
void report_by_code(void);
bool report_is_by_code(void);

/* One line on stderr, after "cudaw: ". It is cleaned, as it may have names from other users. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
