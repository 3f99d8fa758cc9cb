/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENGINE_INTERNAL_H
#define CUDAW_ENGINE_INTERNAL_H
/*
 * What the parts of the engine share. Each is a step of an operation of engine.h:
 *
 *	engine.c		pause and resume
 *	memory.c	GPU memory out and back, mapping, the driver's checkpoint
 *	parts.c		a part of it out, and back as room is granted
 *	lack.c		a resume that finds too little GPU memory
 *	joint.c		a resume together with other processes of the job
 *	shared.c	memory that processes share
 *	snapshot.c	to a snapshot and from it
 *	tidy.c		what is kept for the next pause, or given back
 *	state.c		the state below, results, phases
 *
 * Only the engine's thread calls these. An int is 0 for a success; else the result says what
 * failed.
 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/fetch.h"
#include "checkpoint/engine/saved.h"
#include "checkpoint/engine/saving.h"
#include "common/rundir.h"
#include "common/text.h"

/* What of the job is out, from the least to the most. */
enum engine_out {
	OUT_NOTHING,  /* the program runs, or comes to rest */
	OUT_REST,     /* nothing, but it is at rest: leaving() was called */
	OUT_PART,     /* a part of its memory, from the first unmap on */
	OUT_MEMORY,   /* all of it; there are contexts, which are on the GPU */
	OUT_ALL,      /* all of it; there are no contexts */
	OUT_RELEASED, /* the driver's checkpoint has the contexts, or the driver is locked */
};

struct engine {
	const struct engine_moves *moves; /* may be NULL */
	struct saved saved;
	struct fetch_place place;
	size_t held_slots; /* of the data that the snapshot alone has */
	struct saving saving;
	bool saves; /* a snapshot is being written: saving is in use */

	/* Other threads read these: write them atomically. */
	enum engine_out out; /* by engine_set_out() */
	bool untidy;         /* engine_tidy() has something to do */
	bool held;           /* the snapshot alone has the saved data */
	size_t host, spilled, pool;
	bool unsettled;       /* copies of the last transfer may still be under way */
	struct gpu_lack lack; /* of the last attempt to resume */
	size_t prepared;      /* bytes that were mapped when memory was last made ready */
};

extern struct engine engine;

/*
 * Results; the failures return -1. engine_fail_wait() is for a wait of @op that has ended early;
 * @what: "kernels did not end"; @advice: to follow the message, or "".
 */
int engine_fail(struct engine_result *result, enum end_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int engine_fail_driver(struct engine_result *result, const struct cuda_driver *drv,
		       const char *what, CUresult error);
int engine_fail_wait(struct engine_op *op, const char *what, const char *advice);
const char *engine_error_name(const struct cuda_driver *drv, CUresult error);
bool engine_is_cancelled(const struct engine_op *op);

/*
 * @op begins, and its phases are timed in @result, which is one of its own; a phase of @total bytes
 * begins; it ends; what began at @start has succeeded.
 */
void engine_begin(struct engine_op *op, struct engine_result *result);
void engine_set_phase(struct engine_op *op, const char *phase, size_t total);
void engine_end_phase(struct engine_op *op);
void engine_succeed(struct engine_op *op, double start, size_t bytes);

void engine_set_out(enum engine_out out);
/* What is out of a job whose contexts are not released, by what is saved. */
enum engine_out engine_memory_out(void);

/* Update what other threads read about the saved memory and the pool. */
void engine_publish(void);
/* The saved data is no longer needed. */
void engine_forget(void);

/*
 * Bring the job to rest, unless it is: the phase "drain" of engine.h. On failure it runs on.
 * engine_run() ends the rest, in each case: the program runs, with its memory where it is now, and what
 * was saved is forgotten.
 */
int engine_rest(struct engine_op *op, double deadline_ms);
void engine_run(struct engine_op *op);
/* Memory went out: update what other threads read, and whether there is host memory to pin. */
void engine_paused(void);
/* True if the job is at rest, and no memory of it is mapped. */
bool engine_is_out(void);

/* List the regions, unless that is done, with the program's own objects among them. */
int engine_list(struct engine_op *op);
/*
 * Copy everything out that is not saved yet, and begin to write all to a snapshot if there is an
 * order. On failure the caller calls engine_write_drop(), and forgets what was saved if all of it
 * is still on the GPU.
 */
int engine_save(struct engine_op *op);
/* Its step before the copy of the regions from @from on; and that after it, in any case. */
int engine_save_begin(struct engine_op *op, size_t from);
void engine_save_end(struct engine_op *op);
/* Count the slots that it will need without zeros. The kernels must be loaded. */
int engine_scan(struct engine_op *op, size_t from);
/* Copy everything back that is out, to where it is mapped again; the steps before and after it. */
int engine_load_back(struct engine_op *op);
int engine_load_begin(struct engine_op *op);
int engine_load_end(struct engine_op *op);
/* A transfer has ended. 0, or the result says why it failed. */
int engine_end_transfer(struct engine_op *op, const struct transfer *transfer);
/* Get room for @slots slots; saved_room() found the other two numbers. Whether there is enough. */
bool engine_has_room(size_t slots, size_t pool_slots, size_t spill_slots);
int engine_place(struct engine_op *op, size_t slots, size_t pool_slots, size_t spill_slots);

/*
 * True if every device that this process needs has @needed[dev] bytes free; before a map: an attempt that must
 * fail would take memory for a moment that another waiting job could use. If one has not, it is in
 * engine.lack.
 */
bool engine_memory_is_free(const struct cuda_driver *drv, const size_t *needed);
/*
 * GPU memory did not come free in time: say which GPU lacks how much, and who has it. Returns -1.
 * The job stays paused.
 */
int engine_fail_lack(struct engine_op *op);

/* It waits: from time to time, see who has the memory that is missing. */
void engine_look_at_lack(struct engine_op *op);
/*
 * Map what is not mapped: all or nothing, unless the driver fails to undo it. Unmap the regions from
 * @from on, which are saved, the last one first: they are out from then on. They return the driver's
 * error. The other two do it for one region; a context stays current.
 */
CUresult engine_map(const struct cuda_driver *drv);
CUresult engine_unmap(const struct cuda_driver *drv, size_t from);
CUresult engine_map_region(const struct cuda_driver *drv, size_t i);
CUresult engine_unmap_region(const struct cuda_driver *drv, size_t i);
/* Give back what is imported from other processes, and is not yet; engine_unmap() begins with that. */
CUresult engine_release_imports(const struct cuda_driver *drv);

/*
 * Sleep between two attempts to get memory; *@sleep_ms begins with ENGINE_FIRST_WAIT_MS. 0;
 * -ECANCELED with a result; or -ETIME without one after @deadline_ms (clock_ms(); 0: no limit).
 */
#define ENGINE_FIRST_WAIT_MS 20
int engine_wait_for_memory(struct engine_op *op, double deadline_ms, unsigned int *sleep_ms);

/*
 * Get the context back, and if @map is true the memory too, waiting for free memory until
 * @deadline_ms (clock_ms(); 0: no limit).
 */
int engine_regain(struct engine_op *op, double deadline_ms, bool map);
/*
 * A pause without the release. 0, or -1: the job runs on, unless that fails too (END_FAILED); a
 * job at rest keeps the rest of its memory on the GPU.
 */
int engine_take_memory(struct engine_op *op, double deadline_ms);
/*
 * All memory has its contents again: let the program run, once the other ranks and those that share memory
 * with it have theirs. If they do not get it until @deadline_ms, the regions from @in on are taken
 * back, and the context if it @was_released.
 */
int engine_run_on(struct engine_op *op, size_t in, bool was_released, double deadline_ms);

/*
 * The resume of several processes (pact.h), of which op->progress.pact is NULL if this is none.
 * engine_may_take(): there is room for all, and this process takes its @needed bytes by device. It says that
 * it is about to, and that it has them. engine_wait_for_others(): some time, or less if there is news. 0, or -1
 * with a result: they have given up. engine_is_called_back(): give back what was taken, and begin again.
 * engine_goes_with_others(): this process is whole, and waits until all are, or until @deadline_ms (0: none).
 * False: it gives its memory back.
 */
#define ENGINE_ALONE "another process of the job did not resume, or a pause was asked for"
bool engine_may_take(struct engine_op *op, const size_t *needed);
void engine_takes(const struct engine_op *op);
void engine_has(const struct engine_op *op);
int engine_wait_for_others(struct engine_op *op, double ms);
bool engine_is_called_back(const struct engine_op *op);
bool engine_goes_with_others(struct engine_op *op, double deadline_ms);

/* Have the driver checkpoint the contexts. Returns the error of the driver's function *@call. */
CUresult engine_release(struct engine_op *op, const char **call);
/* See that all can be carried through what @op releases. 0, or @result says what cannot. */
int engine_check_carried(const struct engine_op *op, struct engine_result *result);
/* Release the contexts, if the pause left them. 0, or @result says why not. */
int engine_release_all(struct engine_op *op, struct engine_result *result);
/* Whether host memory has room for the driver's checkpoint of a paused job. */
int engine_check_room(struct engine_result *result);

/*
 * A snapshot of what is being saved: begin to write what arrives. A failure fails the pause only if
 * the pause is for the snapshot alone; else op->written says what failed.
 */
int engine_write_begin(struct engine_op *op);
/* Put into @result why the write failed, once it has: for a transfer that it has cancelled. */
int engine_write_fail(struct engine_result *result);
/* End it, if one is being written; what is not committed is given up. */
void engine_write_drop(void);
/*
 * The pause that began at @start has ended: if neither it nor the writing has failed, finish the
 * snapshot. The outcome is in op->written.
 */
void engine_write_end(struct engine_op *op, double start);

/* Before a snapshot: -1 with the result if others may have host memory of this process (host_objects.h). */
int engine_check_host_memory(struct engine_result *result);

/*
 * Memory that processes share (sharing.h). 0, or -1 with the result of @op: of the first three the job
 * must run on, of the last two it stays paused. engine_meet_released() gives a note only: then the
 * contexts stay on the GPU.
 */
int engine_check_shared(struct engine_op *op, struct engine_result *result);
int engine_meet_at_rest(struct engine_op *op, double deadline_ms);
int engine_meet_saved(struct engine_op *op);
int engine_meet_released(struct engine_op *op);
int engine_get_imports(struct engine_op *op, double deadline_ms);
int engine_meet_whole(struct engine_op *op, double deadline_ms);
/* A resume or a fill has ended: if it has failed for good, tell those that wait for this process. */
void engine_end_shared(const struct engine_op *op);

/* The job's name for messages: as the user has set it, or its id, which is put into @id. */
const char *engine_job_name(char id[RUNDIR_ID_SIZE]);

/*
 * Get what a snapshot holds back into host memory, waiting for free host memory until @deadline_ms
 * (clock_ms(); 0: no limit).
 */
int engine_fetch(struct engine_op *op, double deadline_ms);

#endif
