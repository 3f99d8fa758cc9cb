/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROTOCOL_H
#define CUDAW_PROTOCOL_H
/*
 * What a job and the cudaw command say to each other.
 *
 * Every process that uses CUDA under cudaw listens on a stream socket RUNDIR/PID.sock, mode 0600.
 * RUNDIR is CUDAW_RUNTIME_DIR, or /tmp/cudaw-UID: not XDG_RUNTIME_DIR, which goes away when its
 * user logs out while the job runs on. The directory has mode 0700 and belongs to the user. The job
 * checks its peer by SO_PEERCRED: the same user or root.
 *
 * The client sends one request line; the job answers with lines "KEY VALUE...", the last of which
 * is "end ok" or "end CODE MESSAGE...", and closes. Values run to the end of the line. Unknown keys
 * are to be skipped. Requests:
 *
 *	status			describe the job (keys below)
 *	pause [TIMEOUT_MS] [all|memory]	pause; TIMEOUT_MS bounds the wait for running kernels; the
 *				word stands for CUDAW_RELEASE
 *	resume [TIMEOUT_MS]	resume; TIMEOUT_MS bounds the wait for GPU memory, 0 or none: forever
 *	trim			give back the host and GPU memory that a running job keeps for later
 *	snapshot [pause [TIMEOUT_MS]] [incremental] [hold] [image]
 *	[none|lz4|zstd] DIR	write what a paused job has saved to the directory DIR, an absolute
 *				path. pause: a job that is not paused is paused, and written while
 *				it is copied; it runs on where that fails, and else at done;
 *				incremental: keep what the snapshot there has already;
 *				hold: give the host memory back, a resume reads the snapshot; image:
 *				leave it unfinished, for a process image to be added (FORMAT.md);
 *				the last word: how to compress (none)
 *	done DIR		the snapshot in DIR that was asked for with pause or image is whole,
 *				or given up: a job that was paused for it alone resumes; one that
 *				others want paused, by a request before or meanwhile, stays so, and
 *				locks DIR where that alone has its memory. The answer has the state
 *				that it is in then. The end of the process that asked for the
 *				snapshot means the same, where the job can see that process
 *	moved [OLD=NEW]... DIR	the snapshot that this paused job is in lies in DIR now; the resume
 *				is to go to other GPUs (UUIDs; all that the process sees, or none)
 *
 *	hold [TIMEOUT_MS] [all|memory]	pause, but first come to rest together with other processes
 *	regain [TIMEOUT_MS]	resume, but run on only together with other processes
 *
 * pause, hold and resume send "progress PHASE DONE TOTAL" (bytes) about ten times a second, and
 * "note TEXT" where the outcome needs a word (as "already paused"). An answer to what was really
 * done has pause_ms, pause_bytes and pause_phase, or those of a resume, before its "end ok". A
 * client that hangs up does not stop what it asked for, but for a snapshot with "image" that is not
 * written yet, as nobody would add that: it is called off, unless others want the pause. resume,
 * regain and done say "ready" when the program is about to run on: it may end from there on, and no
 * answer come. A snapshot sends progress too, and snapshot_ms, snapshot_bytes and snapshot_phase.
 *
 * hold is for the processes of one job, which may wait for each other on the GPU
 * (tools/job/steps.h). The job closes its gate, waits for the GPU, and says
 *
 *	held drained N		no call is inside, the GPU is idle, and it stays so
 *	held stuck N		a call has not returned, or the GPU works still
 *
 * where N is the number of calls that a step let in, if it ends one. From drained it is moved by
 * orders only; stuck becomes drained when it does. Orders are lines of the client:
 *
 *	step N			let up to N more calls in, one after the other, until one gets
 *				stuck; answered by "held"
 *	commit			go on as a pause
 *	abort			run on; the answer ends with "end busy"
 *
 * A client that hangs up before it said commit means abort. The end of TIMEOUT_MS does as well.
 *
 * A client that holds several processes may be killed between two commits. So that they do the same
 * then, it may send an eventfd(2) with its request (SCM_RIGHTS), the same to all of them, and write
 * to it before the first commit. A process whose client hangs up looks there: written, it means
 * commit. There is one write, and it comes before every commit: whenever the client ends, either no
 * process has a commit and all find nothing, or all that have none find that they may go on. Nobody
 * reads it, and it ends with the connections. Jobs that do not know it leave it where it is.
 *
 * regain says "held drained 0" when the memory is back; commit lets the program run, abort takes
 * the memory again. A client that hangs up means commit.
 *
 * A pause, resume or regain that asks for what another client holds takes over from that one: a
 * pause or a resume lets it go on at once, a regain is told "held" again. Each client that holds
 * may say commit; only the last one can abort.
 *
 * A directory in a line is the rest of it (snapshot_dir_check_path()).
 *
 * Keys of status:
 *	protocol	1
 *	id		the job: six hexadecimal digits, the same in all its processes (CUDAW_JOB)
 *	name		CUDAW_NAME; absent when not given
 *	pid, uid
 *	command		the program's command line, cut at 200 bytes
 *	state		one of the states below
 *	gpu		ORDINAL UUID NAME; a line for each device with managed memory or a context
 *	addressing	mapped, translated or native (docs/settings.md); then why, where that was not asked for
 *	managed		bytes of GPU memory that cudaw moves
 *	unmanaged	bytes of GPU memory of this process that it does not move (docs/limits.md)
 *	paused		bytes of a paused job that are in host memory
 *	spilled		and on disk (CUDAW_SPILL_DIR)
 *	snapshot	the directory that alone has what a paused job had on the GPU; absent: none
 *	pool		bytes of host memory kept for the next pause: pinned, or made ready
 *	pause_ms pause_bytes resume_ms resume_bytes	the last pause and resume; absent before;
 *			milliseconds have decimals, bytes are of GPU memory
 *	pause_phase resume_phase	NAME MS; a line for each phase of it (engine.h), in order
 *	reason		why the state is what it is, or why the last request failed
 *	signals		a signal that pauses or resumes does not reach the job, and why; absent:
 *			both do, or are not used
 */

#define PROTOCOL_VERSION 1
#define PROTOCOL_LINE    4096 /* the longest line, newline included */
#define PROTOCOL_MESSAGE 512  /* the longest message of an "end", its NUL included */
#define PROTOCOL_WORDS   64   /* of it, the most beside a directory, GPUs aside */
#define PROTOCOL_STEP    4096 /* the most calls of one step */

/* States of a process, as status says them. */
#define STATE_MAP(X)                                              \
	X(RUNNING, "running")                                     \
	X(PAUSING, "pausing")                                     \
	X(PAUSED, "paused")                                       \
	X(RESUMING, "resuming")                                   \
	X(WAITING, "waiting") /* a resume waits for GPU memory */ \
	X(FAILED, "failed")   /* a resume failed; the data is kept and it can be tried again */

#define STATE_ENUM(name, text) STATE_##name,
enum job_state { STATE_MAP(STATE_ENUM) };
#undef STATE_ENUM

/* Codes of the last line. */
#define END_OK          "ok"
#define END_TIMEOUT     "timeout"     /* kernels did not end, or memory did not come, in time */
#define END_NOMEM       "nomem"       /* too little host memory; nothing was changed */
#define END_UNSUPPORTED "unsupported" /* this driver or device cannot */
#define END_BUSY        "busy"        /* another pause or resume is under way */
#define END_DENIED      "denied"      /* not the same user, nor root */
#define END_INVALID     "invalid"     /* not a request */
#define END_FAILED      "failed"      /* anything else, in MESSAGE */

#endif
