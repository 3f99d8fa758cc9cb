/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENGINE_INTERNAL_H
#define CUDAW_ENGINE_INTERNAL_H
/*
 * What the files of the engine share. engine.h has the operations, which take these steps:
 *
 *	out.c		the program's memory goes out
 *	in.c		contexts and memory come back
 *	rest.c		the program comes to rest, and runs again
 *	snapshot.c	to a snapshot and from it
 *	tidy.c		what is kept for the next pause, or given back
 *
 * and in steps:
 *
 *	lack.c		the wait for GPU memory
 *	joint.c		that of several processes of the job
 *	shared.c	memory that processes share
 *	memory.c	mapping, host memory, the driver's checkpoint
 *	state.c		the state below, results, phases
 *
 * A file uses those below it (make check-layers). Only the engine's thread calls these functions, except where they say
 * otherwise. An int is 0 for a success; else the result says what failed.
 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/fetch.h"
#include "checkpoint/engine/saved.h"
#include "checkpoint/engine/saving.h"
#include "common/protocol/pact.h"
#include "common/protocol/rundir.h"
#include "common/text.h"

/* What of the job is out, from the least to the most. */
enum engine_out {
	OUT_NOTHING, /* the program runs, or comes to rest */
	OUT_REST,    /* nothing, but it is at rest: leaving() was called */
	OUT_PART,    /* a part of its memory, from the first unmap on */
	OUT_MEMORY, /* all of it, except what the driver did not unmap; there are contexts, which are on the GPU */
	OUT_ALL,      /* all of it; there are no contexts */
	OUT_RELEASED, /* the driver's checkpoint has the contexts, or the driver is locked */
};

struct engine {
	const struct engine_moves *moves; /* may be NULL */
	struct saved saved;
	struct fetch_place place;
	size_t snapshot_slots; /* of the data that the snapshot alone has */
	bool in_file;          /* whoever has the memory file of the pause has it, too */
	struct saving saving;
	bool saves; /* a snapshot is being written: saving is in use */

	/* Other threads read these: write them atomically. */
	enum engine_out out; /* by engine_set_out() */
	bool untidy;         /* engine_tidy() has something to do */
	long unpinned_until; /* by clock_ms(), engine_pin_none() */
	bool placed; /* the saved data is in a snapshot: alone, or with a pact until the program runs */
	bool lacks_host; /* a resume waits for host memory, to read it */
	size_t host, spilled, pool;
	bool in_snapshot;     /* the snapshot alone has the saved data */
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
/* A resume goes back: a request has cancelled it, or others of its pact have given up or seek again. */
int engine_fail_off(struct engine_op *op);
const char *engine_error_name(const struct cuda_driver *drv, CUresult error);
bool engine_is_cancelled(const struct engine_op *op);

/*
 * @op begins, and its phases are timed in @result, which is one of its own; a phase of @total bytes
 * begins; it ends; of the one under way, @ms were of @phase; what began at @start has succeeded.
 */
void engine_begin(struct engine_op *op, struct engine_result *result);
void engine_set_phase(struct engine_op *op, const char *phase, size_t total);
void engine_end_phase(struct engine_op *op);
void engine_add_phase(struct engine_op *op, const char *phase, double ms);
void engine_succeed(struct engine_op *op, double start, size_t bytes);

void engine_set_out(enum engine_out out);
/* What is out of a job whose contexts are not released, by what is saved. */
enum engine_out engine_memory_out(void);

/* Update what other threads read about the saved memory and the pool. */
void engine_publish(void);

/*
 * Whether pages that hold nothing are worth keeping for the next pause. Not if other jobs could soon be short of
 * memory: what the kernel has to take back from this one it takes slowly (hostmem_ready()).
 */
bool engine_keeps_pages(void);

/* The saved data is no longer needed. */
void engine_forget(void);

/* Bytes that have moved (progress.moved): tell it now, or when there are many more. One thread at a time. */
void engine_has_moved(struct engine_op *op, size_t bytes, bool now);

/*
 * Bring the job to rest, unless it is: the phase "drain" of engine.h. On failure it runs on. engine_run() is
 * the only end of a rest: the program runs, with its memory where it is now, and what was saved is forgotten.
 */
int engine_rest(struct engine_op *op, double deadline_ms);
void engine_run(struct engine_op *op);

/*
 * How memory goes. When a process has met those that share memory with it, it stays at rest, whatever fails, since
 * they have no way back.
 */
enum out_way {
	WAY_ALONE, /* each region as soon as it is copied */
	WAY_EACH, /* likewise, when those that share memory with this one have room for theirs, too */
	WAY_AT_ONCE, /* all, when all is copied, and those that share memory with this one have copied theirs */
};

/*
 * Of a job whose contexts are not released: see that all can be carried through what @op releases, bring the
 * job to rest, and take at least @bytes of its memory that is on the GPU; SIZE_MAX: all.
 * With WAY_AT_ONCE, a snapshot of it is written, if there is a plan. On failure a job that was at rest stays so,
 * with what is left; one that ran runs on, unless some regions are out that went each for itself, or unless what
 * was unmapped cannot be put back (END_FAILED).
 */
int engine_out(struct engine_op *op, size_t bytes, enum out_way way, double deadline_ms);
/* True if the job is at rest, and no memory of it is mapped. */
bool engine_is_out(void);

/*
 * An operation of its own: bring contexts and memory back, and let the program run once it has all. @all: it
 * takes all of it, or nothing; else what there is room for (progress.room), and a failure keeps what is whole.
 */
void engine_in(struct engine_op *op, bool all);
/* Put back what engine_out() has taken, to the job that has not run since. On failure it stays paused. */
int engine_put_back(struct engine_op *op);

/* Run a transfer. 0, or the result says why it failed; it does not if @transfer was cancelled. */
int engine_transfer(struct engine_op *op, struct transfer *transfer);
/* Count the slots that the regions from @from on will need without zeros. The kernels must be loaded. */
int engine_scan(struct engine_op *op, size_t from);
/* Get room for @slots slots; saved_room() found the other two numbers. Whether there is enough. */
bool engine_has_room(size_t slots, size_t pool_slots, size_t spill_slots);
/* @surely: a write must not find then that there is none on disk. */
int engine_place(struct engine_op *op, size_t slots, size_t pool_slots, size_t spill_slots,
		 bool surely);

/*
 * True if every device that this process needs has @needed[dev] bytes free; before a map: an attempt that must
 * fail would take memory for a moment that another waiting job could use. If one has not, it is in
 * engine.lack.
 */
bool engine_memory_is_free(const struct cuda_driver *drv, const size_t *needed);
/*
 * Memory did not come free in time: say which GPU lacks how much, and who has it; or that host memory is missing, or
 * another process was not ready. Returns -1. The job stays paused.
 */
int engine_fail_lack(struct engine_op *op);

/*
 * Map what is not mapped: all or nothing, unless the driver fails to undo it. Unmap the regions from
 * @from on, which are saved, the last one first: they are out from then on. They return the driver's
 * error. The other two do it for one region, in any thread, one at a time; a context stays current.
 */
CUresult engine_map(const struct cuda_driver *drv);
CUresult engine_unmap(const struct cuda_driver *drv, size_t from);
CUresult engine_map_region(const struct cuda_driver *drv, size_t i);
CUresult engine_unmap_region(const struct cuda_driver *drv, size_t i);
/* Give back what is imported from other processes, and is not yet; engine_unmap() begins with that. */
CUresult engine_release_imports(const struct cuda_driver *drv);

/*
 * Sleep between two attempts to get memory; *@sleep_ms begins with ENGINE_FIRST_WAIT_MS. 0;
 * -ECANCELED with a result; or -ETIME without one after @deadline_ms (limits_ms(); 0: no limit).
 */
#define ENGINE_FIRST_WAIT_MS 20
int engine_wait_for_memory(struct engine_op *op, double deadline_ms, double *sleep_ms);

/*
 * The resume of several processes (pact.h), of which op->progress.pact is NULL if this is none.
 * engine_may_take(): there is room for all, and this process takes its @needed bytes by device. engine_say(): what
 * the others are to know. engine_wait_for_others(): some time, or less if there is news. 0, or -1
 * with a result: they have given up. engine_is_called_back(): give back what was taken, and begin again.
 * engine_go_with_others(): this process is whole, and waits until all are, or until @deadline_ms (0: none). 0; or -1
 * with a result: it gives its memory back.
 */
#define ENGINE_WHOLE_MS 500 /* past the time limit, in which one that lacks memory says so first */
#define ENGINE_ALONE    "another process of the job did not resume, or a pause was asked for"
bool engine_may_take(struct engine_op *op, const size_t *needed);
void engine_say(const struct engine_op *op, enum pact_says says);
int engine_wait_for_others(struct engine_op *op, double ms);
bool engine_is_called_back(const struct engine_op *op);
int engine_go_with_others(struct engine_op *op, double deadline_ms);

/* Unpin the host memory of the pool, if the contexts are there to do it. */
void engine_unpin(const struct cuda_driver *drv, const bool *cancel);
/* Have the driver checkpoint the contexts. If it does not, a note of the result says why. */
void engine_release(struct engine_op *op);
/* See that all can be carried through what @op releases. 0, or @result says what cannot. */
int engine_check_carried(const struct engine_op *op, struct engine_result *result);
/* Release the contexts, if the pause left them. 0, or @result says why not. */
int engine_release_all(struct engine_op *op, struct engine_result *result);
/*
 * Whether host memory has room for the driver's checkpoint of a paused job. And the failure if @missing of
 * @apart bytes for it are not there.
 */
int engine_check_room(struct engine_result *result);
int engine_fail_apart(struct engine_result *result, size_t apart, size_t missing);

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
 * must run on, of the last three it stays paused. The two in between give a note only: then the
 * contexts stay on the GPU.
 */
int engine_check_shared(struct engine_op *op, struct engine_result *result);
int engine_meet_at_rest(struct engine_op *op, double deadline_ms);
int engine_meet_saved(struct engine_op *op);
int engine_meet_released(struct engine_op *op);
int engine_meet_gone_back(struct engine_op *op);
int engine_get_imports(struct engine_op *op, double deadline_ms);
/*
 * Before engine_go_with_others(), which is the last moment for this process to give up; and during it: once more.
 * -EAGAIN, without a result: one that was as far has given its memory back. The third: behind it, and with a pact
 * without @deadline_ms.
 */
int engine_meet_complete(struct engine_op *op, double deadline_ms);
int engine_meet_again(struct engine_op *op);
int engine_meet_whole(struct engine_op *op, double deadline_ms);
/* A resume or a fill has ended: if it has failed for good, tell those that wait for this process. */
void engine_end_shared(const struct engine_op *op);

/* The job's name for messages: as the user has set it, or its id, which is put into @id. */
const char *engine_job_name(char id[RUNDIR_ID_SIZE]);

/*
 * Get what a snapshot holds back into host memory, waiting for free host memory until @deadline_ms
 * (limits_ms(); 0: no limit). With a pact the directory stays locked, and is as good as before, until
 * engine_leave_read(), when the program runs; if the resume gives up, engine_drop_read() gives the host memory
 * back, which the others may lack. Both do nothing unless there is such a directory.
 */
int engine_fetch(struct engine_op *op, double deadline_ms);
void engine_leave_read(void);
void engine_drop_read(const struct cuda_driver *drv);

#endif
