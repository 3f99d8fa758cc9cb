/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENGINE_H
#define CUDAW_ENGINE_H
/*
 * Pause and resume of this process.
 *
 * A pause does, in this order:
 *	drain	wait for open stream captures, close the gate, wait for calls inside it, and until
 *		the GPU has done all submitted work, and those of its peers have (quiet.h)
 *		those to whom it matters are told (struct engine_moves)
 *	copy	find host memory and disk space, copy all managed memory there
 *	unmap	unmap it, which gives it back
 *	release	have the driver checkpoint what is left (CUDAW_RELEASE=all, the default, r570+)
 * A failure before unmap undoes what was done and lets the job run on. A failure of unmap maps and
 * copies back. A failure of release leaves the job paused with its context on the GPU, and says so.
 *
 * A resume does the reverse (restore, map, copy), and waits for GPU memory with back-off as long as
 * it has to. When it fails for another reason the data stays where it is and it can be tried again.
 * One that is held (hold.h) lets the program run when its peers have their memory as well, and
 * gives it back where they do not get it.
 *
 * With CUDAW_VERIFY=1 a resume lets the job run only when the GPU finds each granule as it was.
 *
 * One thread at a time calls what is here, but for the questions at the end; never one of the
 * program's.
 */
#include "common/protocol.h"
#include "checkpoint/engine/fetch.h"
#include "vmem/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hold;

/* What an operation is doing, for other threads to read; the numbers are written atomically. */
struct engine_progress {
	const char *phase; /* as above, "memory" while a resume waits for it, "write" or "read" */
	size_t done;       /* bytes */
	size_t total;
	bool waiting;      /* a resume waits for GPU memory */
	bool settled;      /* a pause is done, but for the snapshot that it is written to */
	bool cancel;       /* set by others: give up where that is still possible */
	struct hold *hold; /* set by others before: wait for the peers there; or NULL */
	/* Set by others before a resume, and called when it has all, before the program runs on. */
	void (*ready)(void);
};

#define ENGINE_PHASES 8

struct engine_phase {
	const char *name;
	double ms;
};

struct engine_result {
	const char *code; /* END_* of protocol.h */
	char message[PROTOCOL_MESSAGE];
	char note[256]; /* about a success; empty: nothing to say */
	double ms;
	size_t bytes;                              /* of GPU memory that were taken or given back */
	struct engine_phase phases[ENGINE_PHASES]; /* in order of their beginning */
	size_t nphases;
};

/*
 * For what knows where memory is and must be told that it moves. Called by the engine's thread with
 * the gate closed and the GPU idle; no context is current, nor need be afterwards.
 */
struct engine_moves {
	/*
	 * Before anything is saved. 0, or -ENOTSUP with what is in the way of the pause in @text.
	 */
	int (*leaving)(char *text, size_t size);
	/*
	 * The memory has its contents again: write pointers in it anew. An error fails the resume.
	 */
	CUresult (*copied)(const struct cuda_driver *drv);
	/*
	 * The memory is mapped, perhaps elsewhere, and the program is about to run. It comes once
	 * for each leaving() that returned 0, at a pause that fails as well. What the user should
	 * know goes into @note.
	 */
	void (*back)(char *note, size_t size);
};

/* Before the first pause; @moves must live on. Without it nobody is told. */
void engine_set_moves(const struct engine_moves *moves);

/* A snapshot that is to be written. */
struct engine_writing {
	const struct snapshot_order *order;
	struct snapshot_facts *facts; /* what the engine does not know of them; it adds the rest */
	struct engine_result *result; /* the snapshot's */
};

/*
 * @timeout_ms bounds the wait for captures, calls and kernels. Where @writing is not NULL, what is
 * copied out is written to a snapshot at the same time: from the first piece on, while the rest is
 * copied, unmapped and released. As long as the job has its memory, a snapshot that is cancelled
 * fails the pause, and so does one that fails where the order says that the pause is for it alone;
 * later, or else, the job is paused without it. A pause that fails fails the snapshot.
 */
void engine_pause(const struct cuda_driver *drv, int timeout_ms,
		  const struct engine_writing *writing, struct engine_progress *progress,
		  struct engine_result *result);

/* @timeout_ms bounds the wait for GPU memory; 0: none. Past it the job is as paused as before. */
void engine_resume(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		   struct engine_result *result);

/*
 * Give back what the process keeps for later: host memory of the pool, and GPU memory that no
 * allocation uses. The program is held for milliseconds; @timeout_ms bounds the wait for its calls.
 * While the job is paused there is nothing to give back, which is said.
 */
void engine_trim(const struct cuda_driver *drv, int timeout_ms, struct engine_progress *progress,
		 struct engine_result *result);

/*
 * Write a paused job's memory to a snapshot. Where the order says hold, the host memory is given
 * back and a resume reads the snapshot first; with image the driver's checkpoint is taken where it
 * was not. A failure leaves the job paused as it was.
 *
 * The phase "write" of a snapshot is the time from its first chunk to its last one, synced; other
 * phases go on during it, so that all together may be more than the whole.
 */
void engine_snapshot(const struct cuda_driver *drv, const struct engine_writing *writing,
		     struct engine_progress *progress);

/*
 * The snapshot that this job is in, and alone in, lies at @path now; the resume goes to other GPUs
 * where there are pairs (release_remap()). While no operation is under way. 0 or a negative errno.
 */
int engine_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count,
		 struct snapshot_error *error);

/*
 * Lock the directory that alone has a paused job's memory, if there is one; it must not be locked
 * while a process image is made. While no operation is under way. 0 or a negative errno.
 */
int engine_lock_place(struct snapshot_error *error);

/*
 * What is left to do when an operation has been answered: pin the host memory of a paused job whose
 * context is still there, so that the resume is as fast as the bus; give back host memory of a
 * running one, or with CUDAW_PREPARE=1 make it ready for the next pause, as the job's memory grows.
 * *@cancel, set by others, ends it early.
 */
bool engine_is_untidy(void);
void engine_tidy(const struct cuda_driver *drv, const bool *cancel);

/* True where CUDAW_PREPARE asks to look for work of engine_tidy() now and then. */
bool engine_prepares(void);

/* Bytes of a paused job that are in host memory, and in the spill file. */
size_t engine_paused_bytes(void);
size_t engine_spilled_bytes(void);

/* Host memory that the pool keeps from the kernel: pinned, or made ready. */
size_t engine_pool_bytes(void);

/* True from the first unmap of a pause until the job runs again. */
bool engine_is_paused(void);

/* The directory that has the memory of a paused job alone; NULL: none. */
const char *engine_held_in(void);

/*
 * True while the driver's checkpoint holds the context, or the driver did not unlock the process
 * after one that failed: no driver call may be made.
 */
bool engine_is_released(void);

#endif
