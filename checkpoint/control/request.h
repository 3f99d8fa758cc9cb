/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REQUEST_H
#define CUDAW_REQUEST_H
/*
 * What a line that has come to the job asks (protocol.h): a request, an order of a client that holds, or
 * something that only cudawd says. Nothing is carried out here.
 */
#include "checkpoint/engine/plan.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/release/release.h"
#include "common/gpu/gpu.h"
#include "common/protocol/lines.h"

#include <cuda.h>

#include <stdbool.h>

#define CONTROL_PAUSE_TIMEOUT_MS 30000

#define REQUEST_ORDERS "step N, reach N ID:COUNT..., beside PID, commit or abort"

struct request {
	int id; /* one of enum to_job; TO_JOB: it is not valid, and only this, @text, @expected and line.id are */
	const char *text;
	const char *expected; /* in place of @text, if that is no order */
	struct line line;
	bool hold; /* a client holds the operation (hold.h) */
	bool lent; /* the pause ends with the process that asks */
	double timeout_ms;
	bool own_limit; /* the line does not say it */
	enum release_choice release;
	struct snapshot_plan plan; /* of a snapshot */
	const char *path;          /* of recall, done and moved; in the line */
	size_t bytes;              /* of yield and room */
	bool context;              /* of yield: the contexts go, too */
	CUcheckpointGpuPair pairs[GPU_MAX];
	size_t npairs;
	struct hold_order order; /* of step and reach */
};

/* Parse @text, which must stay in place. */
void request_parse(const char *text, struct request *request);

bool request_is_order(const struct request *request);

#endif
