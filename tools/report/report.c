/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/report.h"

#include "common/text.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE 4096 /* bytes; a longer message is cut */

static bool by_code;

void report_by_code(void)
{
	by_code = true;
	signal(SIGPIPE, SIG_IGN);
}

bool report_is_by_code(void)
{
	return by_code;
}

void complain(const char *fmt, ...)
{
	char line[LINE], clean[LINE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	format_copy(clean, sizeof(clean), line);
	fprintf(stderr, "cudaw: %s\n", clean);
}
