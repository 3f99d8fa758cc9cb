/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ANSWERS_H
#define CUDAW_ANSWERS_H
/*
 * The answers to requests, in the words of protocol.h. Nothing is decided here. Only the control
 * thread calls it.
 */
#include "checkpoint/control/server.h"
#include "checkpoint/control/state/state.h"

struct engine_progress;
struct engine_result;
struct hold_report;

/* What the control thread knows of the job. */
struct answers_facts {
	enum job_state state;
	const struct engine_result *pause,
		*resume;      /* the last results; the code is END_NONE before the first */
	const char *reason;   /* empty: none */
	double failed_for_ms; /* it is that of a failure, so long ago; 0: it is not */
	const char *waits;    /* the word of what the job waits for; NULL: nothing */
	size_t waits_bytes;
	double waits_ms;      /* for so long */
	const char *no_turns; /* why it takes none; empty: it does, or is not to */
};

/* Parts of the status: the job's id, its name and the pid; the command. */
void answers_say_name(const struct client *c);
void answers_say_command(const struct client *c);

/* Send the whole status. */
void answers_status(const struct client *c, const struct answers_facts *facts);

/*
 * Tell the clients that wait how far the operation is; that the program is about to run on, after a
 * @fill or otherwise.
 */
void answers_progress(const struct engine_progress *progress);
void answers_ready(bool fill);

/* Tell those who wait for the job to run that it waits for its turn; end those of them who hold. */
void answers_waiting(void);
void answers_turn(void);

/* Tell them in words what it waits for. */
void answers_wait(const char *text);

/* Tell the client that has the lease that @bytes are @what: "freed" or "mapped". */
void answers_moved(const char *what, size_t bytes);

/* Tell it how long the phases of the yield that has ended took. */
void answers_yielded(const struct engine_result *result);

/* Tell it of the context (protocol.h): out, restored, or stays; @why: that, or "". */
void answers_context(const char *what, const char *why);

/* Tell it that the end that follows is that of a fill. */
void answers_filled(void);
/* Host memory is short in control group @group, or, if it is 0, on the machine. */
void answers_short(uint64_t group);

/*
 * Pass @report, that of @op, to the clients that hold the job: of a yield or a fill to the one that has the
 * lease, else to others.
 */
void answers_report(const struct hold_report *report, enum operation op);

/*
 * Answer the clients that wait for @whom, and end them, except the client that has the lease.
 * @result is that of the operation; NULL: the job is already in the state that they wait for.
 */
void answers_finish(enum server_wait whom, const struct engine_result *result,
		    const struct answers_facts *facts);

#endif
