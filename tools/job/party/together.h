/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TOGETHER_H
#define CUDAW_TOGETHER_H
/*
 * Asks processes to pause, to resume or to trim, those of one job together (coordinate.h), and asks again those that can
 * do so soon.
 */
#include "tools/job/jobs.h"

enum together_what { TOGETHER_PAUSE, TOGETHER_RESUME, TOGETHER_TRIM };

struct together {
	enum together_what what;
	const char *doing; /* for progress_begin() */
	const char *
		release; /* of a pause: "all", "memory" or "snapshot" (protocol.h); NULL: as the job has it */
	double timeout_ms; /* of the whole, however often they are asked; 0: none is given */
	double silence_ms; /* how long a process may say nothing */
	bool once; /* none is asked again, and a pause that has failed in part is not mended */
	int (*line)(struct job *job, const struct line *line); /* as in struct job_request */
	double (*tick)(struct job **jobs, size_t n); /* likewise; it calls together_tick() */
	/* Is given those that are not asked again, after each request, while they have their parties. */
	void (*report)(void *arg, struct job **jobs, size_t n);
	void *arg;
};

/*
 * Ask @jobs, which are described. A pause is asked for again while it is possible soon, within its limit or 30 s, and the
 * jobs get time to run between two requests, more each time; a resume of several processes is, one by one, if they wait
 * for their turn. The order of @jobs changes. Returns 0, or a negative errno after a message: some were not reported.
 */
int together_ask(struct job **jobs, size_t n, const struct together *how);

double together_tick(struct job **jobs, size_t n);

/* Of a resume: it has been accepted, and waits for a turn in which its job runs. */
bool together_waits_for_turn(const struct job *job);

/* The figures of @job that the request brings. A trim has none: those of a resume stay unknown. */
struct job_transfer *together_moved(enum together_what what, struct job *job);

/*
 * Pause @jobs, those of one job, for a snapshot by this process, with nothing left on the GPU; @timeout_ms as for
 * 'cudaw pause', 0: none. All are paused then, or none but those that were before. They resume when this process tells
 * them that it is done (protocol.h), or has ended. @hold blocks interrupts, or unblocks them: they are blocked once all
 * are at rest, and pause whatever becomes of this command. Returns an exit code, after a message that begins with @verb.
 */
int together_pause(struct job **jobs, size_t n, const char *verb, double timeout_ms,
		   void (*hold)(bool on));

/*
 * Resume them, those with a request of their own by that; those that wait for their turn then are waited for with
 * @turns, and else done. The lines of their answers go to @line, which calls outcome_line(). Returns an exit code
 * likewise. Those that stay paused, as somebody else wants, have ended with END_BUSY.
 */
int together_resume(struct job **jobs, size_t n, const char *verb, const char *doing, bool turns,
		    int (*line)(struct job *job, const struct line *line));

#endif
