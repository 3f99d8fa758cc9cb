/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOBS_H
#define CUDAW_JOBS_H
/*
 * Finds the processes that run under cudaw, and talks to many of them at once, by the protocol of
 * common/protocol/protocol.h. One thread and poll(2): no job can delay the others, and each has a time
 * limit. The answers of a job are not trusted: they are bounded, checked and cleaned of control
 * characters before they are shown.
 *
 * The name of a socket is not trusted either, because users choose the names in their own
 * directories: PID.sock is a claim. A job is the process that listens, as the kernel names it
 * (SO_PEERCRED). It must have the PID of the name in its own PID namespace, and run as the owner of
 * the directory; else the socket is ignored. Every action on a job's process uses this identity
 * (tools/process/process.h), never the name. docs/security.md has the details.
 *
 * Jobs whose runtime directory the command does not see, or does not know, are found by their
 * processes (scan.h). So are those that have not made a CUDA call yet: they do not listen, and
 * nothing can be asked of them.
 */
#include "common/protocol/lines.h"
#include "common/protocol/rundir.h"
#include "tools/job/scan.h"
#include "tools/process/process.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_GPUS       64
#define JOBS_STATUS_MS 1000 /* time for a job to send its status */

/* In place of a state of protocol.h: the job does not listen yet. */
#define JOB_STARTING "starting"

/* In place of an errno. */
#define JOB_STOPPED 4096 /* no answer because it is stopped (SIGSTOP) */
#define JOB_OTHER   4097 /* another process listens than the socket's name says */
#define JOB_REFUSES 4098 /* it has no free descriptor for a connection */
#define JOB_LEFT    4099 /* its program has closed the connection, and lives */

/* Conversations at a time; processes of one job that pause together may exceed it. */
#define JOBS_AT_ONCE 256
/* Jobs of one directory; further ones are ignored. */
#define JOBS_IN_DIRECTORY 4096

struct job_gpu {
	int ordinal;
	char uuid[64];
	char name[96];
	uint64_t limit, limit_used; /* bytes; 0: there is no limit */
};

#define JOB_PHASES 10

struct job_phase {
	char name[16];
	double ms;
};

struct job_transfer {
	bool known; /* false: there was none yet */
	double ms;
	uint64_t bytes;
	struct job_phase phases[JOB_PHASES];
	int nphases;
};

/* The answer to "status". */
struct job_status {
	bool protocol; /* it uses our version */
	char id[RUNDIR_ID_SIZE];
	char name[128]; /* empty: none */
	char command[256];
	char state[16]; /* a word of STATE_MAP or of a later version, or JOB_STARTING */
	char reason[512];
	bool failed; /* @reason is that of a failure, failed_ms ago */
	double failed_ms;
	char signals[256]; /* a signal that does not reach the job, and why */
	struct {
		char what
			[16]; /* "turn", "memory" or "allocation"; empty: nothing; @reason says it in words */
		uint64_t bytes;
		double ms;
	} waits;
	char no_turns[256];      /* why it takes no turns though it is to */
	char snapshot[PATH_MAX]; /* the directory that holds its GPU memory; empty: none */
	char addressing[16];
	char addressing_why[160]; /* empty: by CUDAW_ADDRESSING */
	struct job_gpu gpus[JOB_GPUS];
	int ngpus;
	uint64_t carried, left_to_driver, paused, spilled, pool;
	bool released; /* nothing of it is on the GPU */
	struct job_transfer pause, resume;
};

/* The last "progress" line, and where its phase began. */
struct job_progress {
	char phase[32];
	uint64_t done, total;
	uint64_t first_done;
	double first_ms; /* clock_ms() */
	bool any;
	char waiting[512]; /* for what, in words, in the phase of that name */
};

struct party;

/* A runtime directory. It is checked at each use. */
struct job_directory {
	char *path;
	uid_t owner;
	bool inside; /* path is what the job's process sees (tools/process/inside.h) */
};

/* One process. */
struct job {
	pid_t own_pid; /* in its own PID namespace, as in the name of its socket */
	pid_t pid;     /* in ours; the same as own_pid if it is not visible here */
	bool seen;     /* it is in our PID namespace or in a descendant: process is set */
	struct process process;
	uid_t uid; /* its user */
	const struct job_directory *directory;
	size_t turn;    /* its number in the directory: directories take turns */
	bool continued; /* it was stopped by a signal, and got SIGCONT from us */
	bool selected, left_out;
	bool by_driver; /* not under cudaw: the driver has paused it (tools/process/driver_child.h) */
	bool described; /* it has answered: status is filled in */
	bool ready;     /* it has reported that it runs on; it may have ended since */
	struct job_status status;
	char past[512]; /* as in struct inside_drivers */

	/* The conversation under way, or the last one. */
	int fd;      /* -1: none, or over */
	bool queued; /* it has not begun yet */
	struct lines lines;
	double heard;      /* time of its last line, or of its start, by the clock of jobs_ask() */
	int error;         /* 0, or a negative errno: no proper end (see job_error_text) */
	enum end_code end; /* END_NONE: the line function stopped before */
	char message[PROTOCOL_MESSAGE];
	char note[256];
	struct job_progress progress;

	const char *request; /* for it alone, in place of those for all of jobs_ask(); NULL: none */
	struct party *party; /* that it pauses with (coordinate.h), or NULL */
	int token; /* a descriptor to send with party_text, or without a party; 0 or less: none */
	int pact;  /* likewise, with a line "pact" before the request; 0 once it is sent */
	/*
	 * Likewise, with a line "memory". It is closed here once the job has answered: whoever closes such a file last
	 * gives its memory back, which may take seconds. Set it by job_give_memory().
	 */
	int memory;
	bool memory_sent;
	size_t rank; /* in it */
};

struct job_list {
	struct job *jobs;
	size_t n;
	struct job_directory **directories;
	size_t ndirectories;
	/* They do not listen. Of these, status has id, name, command and state, and described is set. */
	struct job *starting;
	size_t nstarting;
	bool denied; /* sockets were ignored, as this process may not connect to them */
};

/* One request for several jobs. */
struct job_request {
	const char *text;
	const char *party_text; /* for jobs that have a party; NULL: the same */
	double limit_ms;        /* -1: none */
	/* The limit is for silence, not for the whole conversation: each line restarts it. */
	bool silence;
	/*
	 * Called for each line except the last; may be NULL. Returns 0, or 1 to end the conversation,
	 * or a negative errno, which ends it as well.
	 */
	int (*line)(struct job *job, const struct line *line);
	/*
	 * Called after every line until all conversations have ended, and after the milliseconds
	 * that it returns. May be NULL.
	 */
	double (*tick)(struct job **jobs, size_t n);
};

/*
 * Find the jobs in the runtime directory; for root, in those of all users. Then find the user's, or
 * for root all users' jobs that are there by their processes; CUDAW_RUNTIME_DIR narrows this to
 * jobs that have the same. No request is sent yet, but the identity of each listener is known, and
 * sockets with a false name are ignored, with a message. No directory means no jobs. Returns 0, or
 * an exit code after a message.
 */
int jobs_find(struct job_list *list);

/* scan_past_text() of a job whose past is set. */
const char *job_past_text(const struct job *job, char buf[SCAN_PAST_TEXT]);

void jobs_free(struct job_list *list);

/*
 * Connect to the socket of @job, and check that the listener is the same job as before, or, the
 * first time, the process that the socket is named after. Returns a descriptor as rundir_connect()
 * does, or a negative errno, or -JOB_OTHER.
 */
int job_connect(struct job *job);

/*
 * The directory that its socket is in: a descriptor that the caller closes, or a negative errno:
 * -EXDEV, only the job's process sees it.
 */
int job_open_directory(const struct job *job);

/* Remove the socket of a job that has ended, unless only the job's process sees it. */
void job_unlink(const struct job *job);

/*
 * Send @request to all @jobs and read their answers; error, end and message have each result.
 * JOBS_AT_ONCE and the free descriptors limit how many conversations there are at a time; the jobs
 * of different directories take turns, and the others wait. A limit begins with a job's turn, and
 * counts only time spent listening, not time in which this process or the machine stalls.
 */
void jobs_ask(struct job **jobs, size_t n, const struct job_request *request);

/* True if all of @jobs have been sent their requests, or could not be, in a line or tick function. */
bool jobs_are_asked(struct job *const *jobs, size_t n);

/* The next request to @job comes with the memory file @fd, which is the job's then; 0 or less: none. */
void job_give_memory(struct job *job, int fd);

/* Send another line, in a line or tick function. */
void job_say(struct job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Send "status" to @jobs, except to suspended ones; described is set in those that gave a valid answer. Of the others
 * status has only id and name, if the environment that they were started with tells these.
 */
void jobs_describe(struct job **jobs, size_t n);

/* The same for all that are found by sockets. Returns 0 or -ENOMEM. */
int jobs_describe_all(struct job_list *list);

/* Whether the job has said that it is in @state. */
bool job_is_in(const struct job *job, enum job_state state);

/* Take one line of a status, or of the figures after a pause or resume. 0 or a negative errno. */
int job_take_field(struct job *job, const struct line *line);

/* True if its process is stopped by SIGSTOP or a terminal, and so cannot answer. */
bool job_is_suspended(const struct job *job);

/* The same, or a debugger has stopped it and it has not answered. */
bool job_is_stopped(const struct job *job);

/* True if it did not answer, or not even accept the call, in time: it may still run. */
bool job_is_silent(const struct job *job);

/* True if nobody listens on the socket any more: the job has ended. */
bool job_is_gone(const struct job *job);

/* Take a "progress" line of @job. */
void job_progress_take(struct job *job, const struct line *line);

/*
 * Show the phase of the first job that is not done, and the sum of the bytes of all jobs, on the
 * progress line (progress.h). A tick function for struct job_request: returns the milliseconds
 * until the next call.
 */
double jobs_show_progress(struct job **jobs, size_t n);

/* A job's error in words. */
const char *job_error_text(int error);

#endif
