/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TAKING_H
#define CUDAW_TAKING_H
/*
 * One run of 'cudaw snapshot', after its options: snapshot.c reads them and prints the result,
 * taking_checks.c finds before the pause why it cannot succeed, taking.c does it, with CRIU's part of it in
 * taking_image.c and the commit in taking_commit.c.
 *
 * The job writes its GPU memory to the directory and stays paused. Then CRIU writes the processes
 * beside it, under the directory's lock, and the manifest is committed. Until then the directory
 * may be the only place that has the job's memory, so every failure either resumes the job or
 * leaves the directory as it is.
 *
 * A job that runs on has left its memory in a file in memory, which the command has. It takes that back once CRIU's
 * image is made: the image becomes complete, and the snapshot is committed, while the job resumes and runs.
 *
 * Of several processes that use CUDA, the first one in the tree is "the job" below, with the directory; each other one
 * has a directory in it. They pause together, and write when all are paused.
 */
#include "checkpoint/snapshot/files/codec.h"
#include "checkpoint/snapshot/files/io.h"
#include "checkpoint/snapshot/manifest_read.h"
#include "common/protocol/protocol.h"
#include "tools/job/jobs.h"
#include "tools/process/criu/criu.h"
#include "tools/process/memory/memory_files.h"
#include "tools/process/monitors.h"
#include "tools/process/criu/tcp.h"
#include "tools/process/criu/tree.h"
#include "tools/process/program.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A process that uses CUDA. */
struct taking_part {
	struct job *job;
	char path[PATH_MAX + SNAPSHOT_PART_SIZE + 1]; /* of its directory */
	int dir;                                      /* locked; -1: not */
	int memory; /* a memory file, which has what it has saved until it resumes; -1: none */
	char request[PROTOCOL_LINE + 1]; /* while one is made */
	struct program program;
	char id[33]; /* of its memory's snapshot */
};

struct taking {
	const char *target;
	char path[PATH_MAX];
	bool stop, incremental, gpu_only, json, check, close_outside;
	enum snapshot_codec codec;
	double timeout_ms;

	struct job_list list;
	struct job *job;
	struct taking_part *parts; /* since taking_check_processes(): the first one is the job's */
	size_t nparts;
	uint32_t index;      /* of the snapshot that the first part has written; only of several */
	struct process root; /* of the job's processes (whole.h), since taking_check_processes() */
	pid_t unknown;       /* likewise */
	bool stays_paused;
	bool went; /* the job has its memory back, and goes on, since before the snapshot was complete */
	int gone; /* an exit code: how that ended */
	struct criu criu;
	struct memory_files memory_files; /* since taking_check_processes() */
	struct tcp_sockets ports;         /* likewise */
	struct tcp_sockets outside;       /* likewise: connections that are to be closed */
	bool closed;                      /* they are, since the last stop */
	size_t nclosed;                   /* all that were */
	struct monitors monitors;         /* likewise */
	bool blind;                       /* one of them could not be restored */
	bool maps;                        /* a file in memory, which was not there before CRIU */
	bool stopped;                     /* the processes, by us, until they are ended or let go */
	double criu_ms, ms;               /* CRIU, and all from the request on */
	size_t image_bytes, nprocesses;   /* in the image */
};

/* Print that the snapshot failed, and @why. Returns EXIT_FAILED. */
int taking_fail(const struct taking *t, const char *why);

/* @ret, and if it is an error of another part than the first one, its process in front of @error. */
int taking_name_part(const struct taking *t, size_t i, int ret, struct snapshot_error *error);

/*
 * Whether CRIU can take the job's processes: all in our PID namespace, of one user, below one process, some of them on
 * the GPU, with nothing shared with other processes (outside.h). They are in @tree then. 0 or a
 * negative errno, with @error: the first reason; -EAGAIN: it may be over a moment later. If @patient, it has waited
 * TAKING_AGAIN_MS for that. With t->check all reasons are printed, instead.
 */
#define TAKING_AGAIN_MS 2000

int taking_check_processes(struct taking *t, struct tree *tree, bool patient,
			   struct snapshot_error *error);

/* Room for the ids of all parts in a request, and for the end of a part's directory. */
#define TAKING_PARTS (12 * SNAPSHOT_PARTS_MAX + SNAPSHOT_PART_SIZE)

/* The part of it for processes that are found. 0 or a negative errno. */
int taking_check_found(struct taking *t, const struct tree *tree, struct snapshot_error *error);

/* The part of that which only needs @tree: of one user, and the whole job. 0 or a negative errno. */
int taking_check_tree(const struct taking *t, const struct tree *tree,
		      struct snapshot_error *error);

/*
 * Whether the processes are stopped before CRIU, and stay so until the snapshot is whole or given up: nothing changes
 * between the last look, CRIU's and the end. Not always, as a shell that runs the job takes it for suspended then.
 */
bool taking_stops(const struct taking *t);

/*
 * With CRIU, the image of the processes in the directory that is open and locked as @dir, which host_image_make() has
 * made @index for. They are in @tree then, stopped or not (taking_stops()), and are those that ran the whole time; what
 * the image cannot have is closed. Also if it fails, taking_continue() and monitors_let_go() are to follow. 0 or a
 * negative errno.
 */
int taking_make_image(struct taking *t, int dir, uint32_t index, struct tree *tree,
		      struct snapshot_error *error);

/* If we have stopped the processes: none has run since the image was made. 0 or a negative errno. */
int taking_check_stopped(const struct taking *t, struct tree *tree, struct snapshot_error *error);

/*
 * Continue the processes that taking_make_image() has stopped. False, and they stay stopped, if a CRIU that was killed
 * has left a connection unusable, or may have.
 */
bool taking_continue(struct taking *t, const struct tree *tree);

/* Look at the processes for taking_commit(), before the job goes on: they may end then. */
void taking_find_facts(const struct taking *t, const struct tree *tree);

/*
 * Make the image complete, with what taking_find_facts() has found, and commit the snapshot whose new manifest is @m.
 * Then whoever waits for it is told, the job is ended if it is to be, and what the snapshot does not need is removed
 * from the directory. 0 or a negative errno.
 */
int taking_commit(struct taking *t, int dir, const struct snapshot_manifest *m, struct tree *tree,
		  struct snapshot_error *error);

/*
 * Whether another job has its memory in the directory. Nobody holds the directory's lock between a
 * job's writing and CRIU, nor for a job that is stopped. The writer refuses the directory as well;
 * this names the other job before anything is asked of it. Returns an exit code; a directory that
 * cannot be read is left to the writer to refuse.
 */
int taking_check_directory(struct taking *t);

/*
 * Remove the files of an attempt that failed or was killed. A directory that a running process
 * has its memory in stays as it is; this process may be the job itself, before it has said so.
 */
void taking_clean(const struct taking *t);

/* Pause, write, and let go on. Returns an exit code after a message. */
int taking_run(struct taking *t);

/* Whether @job has ended, by its last answer: then it holds nothing in the directory any more. */
bool taking_has_ended(const struct job *job);

#endif
