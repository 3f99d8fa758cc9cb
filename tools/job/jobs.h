/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOBS_H
#define CUDAW_JOBS_H
/*
 * Finding the processes that run under cudaw, and talking to many of them at once, by the protocol
 * of common/protocol.h. One thread and poll(2): no job can hold up the others, and each has a
 * time limit. What a job sends is not trusted: it is bounded, checked and cleaned of control
 * characters before anybody sees it.
 *
 * Nor is the name of a socket, which any user chooses in a directory of his own: PID.sock is a
 * claim. A job is the process that listens, as the kernel names it (SO_PEERCRED). It has to have
 * the number of the name in its own PID namespace, and to run as the owner of the directory; else
 * the socket is left out. All that acts on a job's process goes by that (tools/process/process.h),
 * never by the name. docs/security.md has the whole.
 */
#include "common/protocol.h"
#include "common/rundir.h"
#include "tools/process/process.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_GPUS       64
#define JOBS_STATUS_MS 1000 /* what a job has to describe itself in */

/* In the place of an errno. */
#define JOB_STOPPED 4096 /* no answer, as it is stopped (SIGSTOP) */
#define JOB_OTHER   4097 /* another process listens than the one that its socket is named after */

/* Jobs that are talked to at a time; those of one job that pause together come on top. */
#define JOBS_AT_ONCE 256
/* Sockets of one directory that are taken for jobs. */
#define JOBS_IN_DIRECTORY 4096

struct job_gpu {
	int ordinal;
	char uuid[64];
	char name[96];
};

#define JOB_PHASES 8

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

/* What status says. */
struct job_status {
	bool protocol; /* it speaks ours */
	char id[RUNDIR_ID_SIZE];
	char name[128]; /* empty: none */
	char command[256];
	char state[16];
	char reason[256];
	char signals[256];       /* one does not reach the job, and why */
	char snapshot[PATH_MAX]; /* which alone has what it had on the GPU, as it is; empty: none */
	char addressing[16];
	char addressing_why[160]; /* empty: it was asked for */
	struct job_gpu gpus[JOB_GPUS];
	int ngpus;
	uint64_t carried, left_to_driver, paused, spilled, pool;
	struct job_transfer pause, resume;
};

/* The last "progress" line, and where its phase began. */
struct job_progress {
	char phase[32];
	uint64_t done, total;
	uint64_t first_done;
	double first_ms; /* clock_ms() */
	bool any;
};

struct party;

/* A runtime directory that was checked, and is at each use. */
struct job_directory {
	char *path;
	uid_t owner;
};

/* One process. */
struct job {
	pid_t own_pid; /* what its socket is named, and it calls itself, in its own PID namespace */
	pid_t pid;     /* in ours; where it is not seen from here, the same as own_pid */
	bool seen;     /* it is in our PID namespace, or in one below: process says who it is */
	struct process process;
	uid_t uid; /* who it runs as */
	const struct job_directory *directory;
	size_t turn; /* its number in the directory: users take turns */
	bool selected, left_out;
	bool described; /* status is filled in */
	bool ready;     /* it has said that it runs on, and may have ended since */
	struct job_status status;

	/* The conversation under way, or the last one. */
	int fd;      /* -1: none, or over */
	bool queued; /* it has not begun */
	char line[PROTOCOL_LINE];
	size_t len;
	int64_t heard; /* when it last said something, or began, by the clock of jobs_ask() */
	int error;     /* 0, or why there was no proper end (negative errno; see job_error_text) */
	char end[16];  /* code of the "end" line; empty where the line function had enough */
	char message[PROTOCOL_MESSAGE];
	char note[256];
	struct job_progress progress;

	struct party *party; /* that it pauses with (coordinate.h), or NULL */
	int token;           /* a descriptor to send with party_text; 0 or less: none */
	size_t rank;         /* in it */
};

struct job_list {
	struct job *jobs;
	size_t n;
	struct job_directory **directories;
	size_t ndirectories;
};

/* One request for several jobs. */
struct job_request {
	const char *text;
	const char *party_text; /* for jobs that have a party; NULL: the same */
	int limit_ms;           /* -1: none */
	/* The limit is for a silence, not for the whole: every line starts it anew. */
	bool silence;
	/*
	 * Called for each line but the last. Returns 0, 1 for "heard enough" or a negative errno
	 * that ends the conversation.
	 */
	int (*line)(struct job *job, const char *key, char *value);
	/*
	 * Called after every line until all have ended, and after as many milliseconds as it
	 * returns; NULL: not.
	 */
	int (*tick)(struct job **jobs, size_t n);
};

/*
 * Find the jobs in the runtime directory; for root, in those of all users. Nothing is asked yet,
 * but who listens is known, and sockets that are not what they are named are left out, which is
 * said. No directory means no jobs. Returns 0, or an exit code after saying why.
 */
int jobs_find(struct job_list *list);

void jobs_free(struct job_list *list);

/*
 * Connect to the socket of @job, and see that who listens is the job that it was, or, at the first
 * time, the process that the socket is named after. Returns a descriptor as rundir_connect() does,
 * or a negative errno, -JOB_OTHER.
 */
int job_connect(struct job *job);

/* The directory that its socket is in: a descriptor that the caller closes, or a negative errno. */
int job_open_directory(const struct job *job);

/* Remove the socket of a job that has ended. */
void job_unlink(const struct job *job);

/*
 * Send @request to all @jobs and hear them out; error, end and message say how each went. So many
 * are talked to at a time as JOBS_AT_ONCE and the descriptors allow, one of each directory in turn;
 * the others wait for theirs. A limit begins with a job's turn, and is one of time spent listening:
 * while this process or the whole machine stalls it does not run.
 */
void jobs_ask(struct job **jobs, size_t n, const struct job_request *request);

/* Send another line, in a line or tick function. */
void job_say(struct job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ask "status" of @jobs; described is set in those that gave a proper answer. */
void jobs_describe(struct job **jobs, size_t n);

/* Take one line of a status, or of the figures that end a pause or resume. 0 or -EBADMSG. */
int job_take_field(struct job *job, const char *key, char *value);

/* True where its process is stopped, by SIGSTOP or as a terminal does: it answers nobody. */
bool job_is_stopped(const struct job *job);

/* True where it did not answer in time, or did not even take the call: it may be there. */
bool job_is_silent(const struct job *job);

/* True where nobody listens on the socket any more: it is no job. */
bool job_is_gone(const struct job *job);

/* Take the value of a "progress" line of @job. Returns 0 or -EBADMSG. */
int job_progress_take(struct job *job, const char *value);

/*
 * Show the phase of the first job that is not done, and the sum of the bytes of all, on the line of
 * progress.h. A tick function for struct job_request: returns the milliseconds until the next call.
 */
int jobs_show_progress(struct job **jobs, size_t n);

/* A job's error in words. */
const char *job_error_text(int error);

#endif
