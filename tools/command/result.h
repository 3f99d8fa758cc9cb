/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RESULT_H
#define CUDAW_RESULT_H
/* How a request of 'cudaw pause', 'resume' or 'trim' has ended for one process, for people and as JSON. */
#include "common/protocol/protocol.h"
#include "tools/job/jobs.h"

#include <jansson.h>
#include <stdbool.h>

struct result_verb {
	const char *name, *doing, *done;
};

extern const struct result_verb result_pause, result_resume, result_trim;

struct result {
	const struct result_verb *verb;
	pid_t pid;
	const char *label;     /* names the process for people; NULL: its PID does */
	const char *id, *name; /* of its job; empty: it has none */
	const char *word;      /* as docs/json.md has it */
	int code;              /* the exit code for this process alone */
	char why[PROTOCOL_MESSAGE];
	char note[256];
	struct job_transfer moved;
	bool unsized; /* the bytes of @moved are not known */
	bool ended;   /* it has succeeded, and the process has ended since */
};

/* A failure is a line on stderr; what else happened one on stdout, unless @rows gets an object: then both may be. */
void result_print(const struct result *result, json_t *rows);

#endif
