/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_PLAN_H
#define CUDAW_SNAPSHOT_PLAN_H
/* The snapshot that a request or a signal asks for. */
#include "checkpoint/snapshot/format.h"

#include <limits.h>
#include <stdbool.h>

struct snapshot_plan {
	char path[PATH_MAX]; /* of the directory, absolute */
	bool pause;          /* the job pauses for the snapshot alone, and then runs again */
	bool incremental;
	enum snapshot_codec codec;
	bool gives_back; /* the host memory, at the end: the snapshot alone has the data then */
	bool image;      /* others will add a process image, and finish the snapshot */
	/* The image will be of all these processes that use CUDA, and each writes its memory; none: only of this one. */
	int parts[SNAPSHOT_PARTS_MAX];
	size_t nparts;
};

#endif
