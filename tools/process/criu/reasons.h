/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REASONS_H
#define CUDAW_REASONS_H
/* Within outside_find(): the reasons on their way to the caller. */
#include "tools/process/criu/outside.h"

#define REASONS_LABEL 128

struct reasons {
	const pid_t *jobs; /* that use CUDA under cudaw, or NVML alone */
	size_t njobs;
	outside_take take;
	void *arg;
	bool passes; /* the next one may be over a moment later */
	bool over;   /* the caller wants no more */
};

bool reasons_is_job(const struct reasons *reasons, pid_t pid);

/* Give the caller a reason, which passes if @reasons says so. */
void reasons_give(struct reasons *reasons, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* "1234 (python)", in @buf, which is returned. */
const char *reasons_label(pid_t pid, char buf[REASONS_LABEL]);

#endif
