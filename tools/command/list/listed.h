/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LISTED_H
#define CUDAW_LISTED_H
/* All processes that 'cudaw ps' lists: those under cudaw, and those that the driver has paused. */
#include "tools/job/jobs.h"

struct listed {
	struct job_list list;
	struct job *others; /* that the driver has paused */
	struct job **jobs;  /* of both; those that answer are described */
	size_t n;
};

/* Returns an exit code, not 0 after a message. Free @listed in any case. */
int listed_find(struct listed *listed);
void listed_free(struct listed *listed);

#endif
