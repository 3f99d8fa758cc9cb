/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/reasons.h"

#include <stdarg.h>
#include <stdio.h>

#define WHY_SIZE 512

bool reasons_is_job(const struct reasons *reasons, pid_t pid)
{
	return process_is_among(pid, reasons->jobs, reasons->njobs);
}

void reasons_give(struct reasons *reasons, const char *fmt, ...)
{
	char why[WHY_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	reasons->over = !reasons->take(reasons->arg, why, reasons->passes);
	reasons->passes = false;
}

const char *reasons_label(pid_t pid, char buf[REASONS_LABEL])
{
	char name[PROCESS_NAME];

	snprintf(buf, REASONS_LABEL, "%d (%s)", pid, process_name(pid, name));
	return buf;
}
