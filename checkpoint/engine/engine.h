/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENGINE_H
#define CUDAW_ENGINE_H
/*
 * Pause and resume of this process.
 *
 * A pause does, in this order:
 *	drain	wait for open stream captures, close the gate, wait for calls inside it, until the
 *		GPU has done all submitted work, and until the GPUs of the other ranks have (quiet.h);
 *		then call leaving() of struct engine_moves
 *	copy	find host memory and disk space, copy all carried memory there
 *	unmap	unmap it, which gives it back
 *	release	have the driver checkpoint what is left (CUDAW_RELEASE=all, the default, r570+)
 * Processes that share memory wait for each other behind drain, copy and unmap (sharing.h).
 * A failure before unmap undoes what was done and lets the job run on. A failure of unmap maps and
 * copies back. A failure of release leaves the job paused with its context on the GPU, and a note
 * in the result says so.
 *
 * A resume does the reverse (restore, map, copy), gets the memory of other processes (imports; sharing: the wait for
 * them), and waits for GPU memory with back-off as long as it has to (memory). If a snapshot alone has the data, it
 * waits for host memory before that, and reads it (read); with a pact, when there is room for all. If it fails for
 * another reason, the data stays where it is, and the resume can be tried again. A resume that is held (hold.h) lets
 * the program run when the other ranks have their memory too (ranks: the wait for that), and gives the memory back if
 * they do not get theirs. One with a pact takes none before there is room for all ranks (pact.h).
 *
 * There is one road out, and one in. A yield takes a part of the memory, and unmaps each region once it is
 * copied; a pause is a yield of all that unmaps when all is copied. A fill brings memory back as room is
 * granted; a resume is a fill that has room for all, and takes all or nothing. In between the job does not
 * run, and can be yielded, filled, paused and resumed in any order.
 *
 * With CUDAW_VERIFY=1 a resume lets the job run only if the GPU finds each granule unchanged.
 *
 * One thread at a time calls these functions, except the questions at the end, and never a thread
 * of the program.
 */
#include "checkpoint/release/release.h"
#include "common/gpu/gpu.h"
#include "common/patience.h"
#include "common/protocol/protocol.h"
#include "common/system/ownfd.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_driver;
struct hold;
struct pact;
struct snapshot_error;
struct snapshot_facts;
struct snapshot_plan;

/* How far an operation is, for other threads to read; the numbers are written atomically. */
struct engine_progress {
	const char *phase; /* as above; "memory" while a resume waits for it; "write" or "read" */
	size_t done;       /* bytes */
	size_t total;
	bool waiting; /* a resume waits for GPU memory, or for host memory */
	bool settled; /* a pause is done, and only its snapshot is still being written */
	bool agreed; /* the pact of a resume says GO: it is whole, and waits for those that share memory */
	bool cancel;       /* set by others: give up if that is still possible */
	struct hold *hold; /* set before it begins: where it waits for the other ranks; or NULL */
	struct pact *pact; /* the same, of a resume together with other processes of the job */
	/* Set before a resume begins. Called when all is restored, before the program runs on. */
	void (*ready)(void);
	/* Of a yield: bytes that it has unmapped. Of a fill: bytes that are mapped now. */
	size_t moved;
	void (*tell)(void); /* set before it begins; called now and then when @moved has changed */
	size_t room;        /* set by others: bytes that may be mapped during a fill */
};

#define ENGINE_PHASES 10

struct engine_phase {
	const char *name;
	double ms;
};

struct engine_result {
	enum end_code code;
	char message[PROTOCOL_MESSAGE];
	char note[256]; /* about a success; may be empty */
	double ms;
	size_t bytes;    /* of GPU memory, copied out or back */
	bool lacks_host; /* it failed since host memory is short */
	uint64_t group;  /* in this control group (hostmem_group()); 0: on the machine */
	bool bound; /* it failed since others, which are not asked, wait for it or share memory with it */
	struct engine_phase phases[ENGINE_PHASES]; /* in order of their beginning */
	size_t nphases;
};

/*
 * Calls to a module that knows where memory is, and must hear that it moves. The engine's thread
 * makes them with the gate closed and the GPU idle; no context is current, nor needs to be
 * afterwards.
 */
struct engine_moves {
	/* Before anything is saved. 0, or -ENOTSUP with the obstacle to the pause in @text. */
	int (*leaving)(char *text, size_t size);
	/* The memory has its contents again: update pointers in it. An error fails the resume. */
	CUresult (*copied)(const struct cuda_driver *drv);
	/*
	 * The memory is mapped, perhaps elsewhere, and the program is about to run. Called once for
	 * each leaving() that returned 0, also if the pause fails. @note is for the user.
	 */
	void (*back)(char *note, size_t size);
};

/* Before the first pause. @moves must stay in place. Without it no such call is made. */
void engine_set_moves(const struct engine_moves *moves);

/*
 * An operation: its options, its progress, and its results. It must stay in place until the
 * operation ends.
 */
struct engine_op {
	const struct cuda_driver *drv;
	double timeout_ms;
	bool alone; /* of a pause or a yield: no other process of the job is asked for it as well */
	bool awaits_lock; /* of a resume or a fill: others get a moment to leave its snapshot */
	enum release_choice release; /* what a pause gives back */
	size_t bytes;                /* of a yield */
	bool context;                /* of a yield of all memory: the contexts are to go as well */
	/*
	 * Of a pause for a snapshot that gives the host memory back: a memory file, where that stays for engine_take_back().
	 * Whoever starts the operation closes it.
	 */
	struct ownfd memory;
	size_t room;   /* the engine's: the last progress.room that a fill saw */
	size_t mapped; /* the engine's: bytes that a pause found, and a yield has left, on the GPU */
	size_t told;   /* the engine's: progress.moved when it told last */
	bool kept; /* the engine's: a resume that failed has left contexts on the GPU that were out before it */
	const struct snapshot_plan *plan; /* the snapshot to write; NULL: none */
	struct snapshot_facts *facts;     /* of the snapshot; the engine adds what it knows */

	struct engine_progress progress;
	struct engine_result result;  /* of every operation except engine_snapshot() */
	struct engine_result written; /* of the snapshot, if there is a plan */

	/* The engine's: how long it has lacked memory that there was room for. */
	struct patience lacks;
	/* Of the pact, when it last asked whether it may take its memory; the first is an enum pact_phase. */
	struct {
		unsigned int phase;
		bool known;
	} seen;
	double waits_since_ms, asked_ms; /* for memory; when it asked last who has it; 0: not yet */
	/* And the phase under way (NULL: none), and the result that gets its time. */
	const char *phase;
	double phase_start_ms; /* clock_ms() */
	struct engine_result *timed;
};

/*
 * The timeout bounds the wait for captures, calls and kernels. If there is a plan, the engine
 * writes the snapshot at the same time: from the first piece on, while it copies, unmaps and
 * releases the rest. As long as the job has its memory, a cancelled snapshot fails the pause, and
 * so does a failed snapshot if the plan says that the pause is for the snapshot alone. After that,
 * or without such a plan, the job is paused without the snapshot. A pause that fails fails the
 * snapshot.
 */
void engine_pause(struct engine_op *op);

/*
 * Release what a pause has left on the GPU, as if it had released everything. A failure leaves the
 * job paused as it was.
 */
void engine_release_kept(struct engine_op *op);

/* The timeout bounds the wait for memory; 0: no limit. After it the job is paused as before. */
void engine_resume(struct engine_op *op);

/*
 * Take at least op->bytes more of the memory off the GPUs, of each at least the same part of what is there, or all that is
 * there. A running job is brought to rest as by a pause, within the timeout; release must be RELEASE_MEMORY. Each region
 * is unmapped as soon as it is copied, while others are being copied; always the same ones go first.
 * If it fails before anything is unmapped, a job that ran runs on. Else the job keeps what is on the
 * GPU, and stays at rest; nothing is lost. With progress.hold nothing is unmapped before there is room for all that
 * goes, here and in the processes that share memory with this one. If there are some, the job then stays at rest,
 * whatever fails.
 *
 * With op->context, and if then no memory is left, the driver's checkpoint takes the contexts as well. If it
 * does not, which is no failure of the yield, the result's note says why: also if NVML does not say how much they
 * take, as the room for them could not be kept then.
 */
void engine_yield(struct engine_op *op);

/*
 * Bring memory back to a job at rest while less than progress.room is mapped; others raise that
 * meanwhile. If the driver has no memory, it waits. When all is back, the job runs. The fill ends
 * with END_OK, too, if no further room comes for a moment; a failure or a cancellation keeps on the
 * GPU what is complete there. Where host memory is short, it gives that of what is complete back: a job
 * that was out may then fail to go out again (END_NOMEM), and keeps what is back.
 */
void engine_fill(struct engine_op *op);

/*
 * Give back what the process keeps for later: host memory of the pool, and GPU memory that no
 * allocation uses. The program is held for milliseconds; the timeout bounds the wait for its calls.
 * A paused job has nothing to give back, and the result's note says so.
 */
void engine_trim(struct engine_op *op);

/*
 * Bring a running job to rest, and let it run on. END_OK: no call was inside, and the GPU had done all
 * work, or did so within the timeout.
 */
void engine_probe(struct engine_op *op);

/*
 * Write a paused job's memory to a snapshot. With gives_back in the plan the host memory is given back,
 * and a resume reads the snapshot first. If the plan says image, the driver's checkpoint is taken
 * unless the pause took it. A failure leaves the job paused as it was.
 *
 * The phase "write" of a snapshot is the time from its first chunk to its last one, synced. Other
 * phases run at the same time, so the sum of all phases may exceed the whole.
 */
void engine_snapshot(struct engine_op *op);

/*
 * The snapshot that alone has this job's memory is at @path now. If there are pairs, the resume
 * goes to other GPUs (release_remap()). @memory, if not negative, is a memory file with what the resume would read
 * (fetch_filled()); the caller closes it. While no operation is under way. 0 or a negative errno.
 */
int engine_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count, int memory,
		 struct snapshot_error *error);

/*
 * @memory is the memory file of the pause, and still has what the snapshot has: the resume need not read that. While no
 * operation is under way. 0 or a negative errno: then it reads it.
 */
int engine_take_back(int memory);

/*
 * Lock the directory that alone has a paused job's memory, if there is one; it must not be locked
 * while a process image is made. While no operation is under way. 0 or a negative errno.
 */
int engine_lock_place(struct snapshot_error *error);

/*
 * Work that remains when an operation has been answered: pin the host memory of a paused job whose
 * context is still there, so that the resume is as fast as the bus; give back host memory of a
 * running job, or with CUDAW_PREPARE=1 make it ready for the next pause, as the job's memory grows.
 * If it is cancelled it ends early, and the rest remains to be done. It has no result.
 */
bool engine_is_untidy(void);
void engine_tidy(struct engine_op *op);

/*
 * Host memory is short: for ten minutes, while the job is paused none of it is pinned, and what was is unpinned.
 * That of a running job stays until then: to unpin it, the driver waits until all kernels have ended [H200, driver
 * 580.159.04], and they may wait for calls of the program. Any thread.
 */
void engine_pin_none(void);

/*
 * Bytes of a job at rest that are not on the GPU, by device; of a running one none. While no operation
 * is under way that moves memory.
 */
void engine_missing(size_t needed[GPU_MAX]);

/* True if CUDAW_PREPARE is set: look for work of engine_tidy() from time to time. */
bool engine_prepares(void);

/* Bytes of a paused job that are in host memory, in the spill file, and in either or in a snapshot alone. */
size_t engine_paused_bytes(void);
size_t engine_spilled_bytes(void);
size_t engine_saved_bytes(void);

/* Host memory that the pool keeps: pinned, or made ready. */
size_t engine_pool_bytes(void);

/* True from the first unmap of a pause until the job runs again. */
bool engine_is_paused(void);

/* True if the job is paused, and its contexts are on the GPU. */
bool engine_keeps_context(void);

/* True if the job is paused, and nothing of it is on the GPU, not even in a process that the driver has locked. */
bool engine_is_off_gpu(void);

/* True if the job is paused, and a part of its memory is on the GPU. */
bool engine_is_partly_out(void);

/*
 * The directory of the snapshot that alone has the memory of a paused job, or that a joint resume has read and may
 * need again; NULL: none. Then engine_snapshot_bytes() says how much host memory or disk space the read takes.
 */
const char *engine_snapshot_dir(void);

/*
 * Who has the GPU memory that the resume under way waits for, as it was seconds ago: "GPU 0 (H200, UUID) lacks
 * 3.00 GiB; 12 (train) has 3.0 GiB". Empty if that is not known. Any thread.
 */
#define ENGINE_HOLDERS 320
void engine_holders(char *text, size_t size);
size_t engine_snapshot_bytes(void);

/* True while a resume waits for host memory, to read that. Any thread. */
bool engine_lacks_host(void);

/*
 * True while the driver's checkpoint holds the context, or the driver did not unlock the process
 * after one that failed: no driver call may be made.
 */
bool engine_is_released(void);

#endif
