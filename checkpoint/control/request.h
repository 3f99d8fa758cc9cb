/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_REQUEST_H
#define CUDAW_REQUEST_H
/*
 * Parses the lines of clients (protocol.h) by a table of words, each with the function that reads
 * its arguments. Nothing is carried out here.
 */
#include "checkpoint/engine/plan.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/release/release.h"
#include "common/gpu.h"

#include <cuda.h>

#include <stdbool.h>

#define CONTROL_PAUSE_TIMEOUT_MS 30000

enum request_word {
	REQUEST_STATUS,
	REQUEST_PAUSE,
	REQUEST_RESUME,
	REQUEST_TRIM,
	REQUEST_SNAPSHOT,
	REQUEST_DONE,
	REQUEST_MOVED,
	REQUEST_YIELD,
	REQUEST_ROOM,
};

struct request {
	enum request_word word;
	bool hold; /* a client holds the operation (hold.h) */
	int timeout_ms;
	enum release_choice release;
	struct snapshot_plan plan; /* of a snapshot */
	const char *path;          /* of done and moved; in the line */
	size_t bytes;              /* of yield and room */
	CUcheckpointGpuPair pairs[GPU_MAX];
	size_t npairs;
};

/*
 * Parse @line, which may be changed. Returns NULL, or the requests that were expected; an unknown
 * word leaves @line as it was.
 */
const char *request_parse(char *line, struct request *request);

/* A line of a client that holds. */
struct request_order {
	struct hold_order order;
	pid_t beside; /* that process shares a GPU; 0: the line says something else */
	bool abort;
};

/* Parse @line. Returns NULL, or the orders that were expected. */
const char *request_parse_order(const char *line, struct request_order *order);

#endif
