/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PROTOCOL_H
#define CUDAW_PROTOCOL_H
/*
 * The protocol between a job and the cudaw command, and between a job and the daemon cudawd.
 *
 * Every process that uses CUDA under cudaw listens on a stream socket RUNDIR/PID.sock, mode 0600.
 * RUNDIR is CUDAW_RUNTIME_DIR, or /tmp/cudaw-UID. It is not in XDG_RUNTIME_DIR, which goes away
 * when its user logs out while the job runs on. The directory has mode 0700 and belongs to the
 * user. The job checks its peer by SO_PEERCRED: the same user or root.
 *
 * The client sends one request line. The job answers with lines "KEY VALUE...", of which the last
 * is "end ok" or "end CODE MESSAGE...", and closes. Values run to the end of the line. A client
 * skips unknown keys. Requests:
 *
 *	status			describe the job (keys below)
 *	pause [TIMEOUT_MS] [all|memory]	pause; TIMEOUT_MS bounds the wait for running kernels; the
 *				word stands for CUDAW_RELEASE. With "all" a job that is paused with
 *				its context on the GPU releases that, too
 *	resume [TIMEOUT_MS]	resume; TIMEOUT_MS bounds the wait for GPU memory; 0 or
 *				none: no limit
 *	trim			give back the host and GPU memory that a running job keeps for later
 *	snapshot [pause [TIMEOUT_MS]] [incremental] [hold] [image [parts PID PID...]]
 *	[none|lz4|zstd] DIR	write the memory that a paused job has saved to the directory DIR,
 *				an absolute path. pause: a job that is not paused is paused, and
 *				written while it is copied; it runs on after a failure, otherwise
 *				at done; incremental: keep the data that the snapshot there has;
 *				hold: give the host memory back, a resume reads the snapshot; image:
 *				leave it unfinished, for a process image to be added (FORMAT.md);
 *				parts: this image will be of all these processes (as they see their ids),
 *				which may share memory; each is asked likewise, with a directory of its own;
 *				the last word: how to compress (none)
 *	recall DIR		the job, which is paused only for the snapshot in DIR, takes its memory back
 *				from the memory file that came before, and stays paused until "done": it does
 *				not need DIR any more. end busy: it needs DIR, or is to stay paused
 *	done DIR		the snapshot in DIR, requested with pause or image, is complete or
 *				given up. A job that was paused only for it resumes. A job that
 *				other requests, before or meanwhile, want paused stays paused, and
 *				locks DIR if its memory is only there. The answer has its state
 *				then. The end of the process that requested the snapshot means the
 *				same, if the job can see that process. A pact may come with the line,
 *				as with regain. After "hold snapshot" it need name no snapshot
 *	moved [OLD=NEW]... DIR	the snapshot of this paused job is now in DIR; the resume uses other
 *				GPUs (UUIDs; all of the machine if known, or none). A memory file may come
 *				with the line (SCM_RIGHTS), with what the resume would read from DIR:
 *				fetch_filled()
 *
 *	pact			the pact that comes with this line is for the end of a "hold snapshot" that follows
 *	memory			the memory file that comes with this line is for the request that follows:
 *				"hold snapshot" or "snapshot pause" with hold: the pause puts the memory there,
 *				where it stays when the job gives its host memory back; with recall or done: there
 *				it still is, so that the resume need not read the snapshot. It is sealed against
 *				shrinking. What does not fit into it is read
 *	hold [TIMEOUT_MS] [all|memory|snapshot]	pause, but first come to rest together with other
 *				processes. snapshot: as "all", but this process is to have a snapshot: the
 *				pause ends as that of "snapshot pause", by done or the end of the process,
 *				and nobody else's is taken meanwhile. It resumes then by the pact, if one has
 *				come before, as with regain; done comes with the same one, or with another
 *	regain [TIMEOUT_MS]	resume, but run on only together with other processes
 *
 * pause, hold and resume send "progress PHASE DONE TOTAL" (bytes) about ten times a second, and
 * "waiting TEXT" with it, in words, while a resume waits for memory or a turn. They send
 * "note TEXT" if the outcome needs a remark (e.g. "already paused"). After a real pause the answer
 * has pause_us, pause_bytes and pause_phase before its "end ok"; after a real resume, those of the
 * resume. A client that disconnects does not stop its request, with one exception: a snapshot with
 * "image" that is not written yet is cancelled, since no process would add the image, unless other
 * requests want the pause. resume, regain and done send "ready" when the program is about to run
 * on: it may end from then on, and no answer come. A snapshot sends progress too, and snapshot_us,
 * snapshot_bytes and snapshot_phase.
 *
 * hold is for the processes of one job, which may wait for each other on the GPU
 * (tools/job/party/steps.h). The job closes its gate, waits for the GPU, and sends
 *
 *	held drained N		no call is inside, the GPU is idle, and it stays so
 *	held stuck N		a call has not returned, or the GPU still works
 *
 * N is the number of calls that a step let in, if this line ends a step. A drained job moves only
 * by orders. A stuck job reports "held drained" when it drains. Before such a line comes
 *
 *	comms ID:SIZE:COUNT[:RANK][s]...	the communicators in which this process has launched
 *				kernels that wait for other processes (checkpoint/ledger/ranks.h),
 *				in the order of their first launches: how many ranks each has (0:
 *				not known), how many launches there were, and the rank of this
 *				process, if known; s: of kernels that not all ranks launch, which
 *				count by themselves. No line: none is known
 *
 * Orders are lines of the client:
 *
 *	step N			let up to N more calls in, one after the other, until one gets
 *				stuck, or has launched kernels that count with an "s"; answered by
 *				"held"
 *	reach NUMBER ID:COUNT...	let all calls in until each of these communicators has had
 *				so many launches; then hold again, and answer with "held drained 0
 *				NUMBER" or "held stuck 0 NUMBER". Later "held" lines repeat the
 *				number. Meanwhile a line "comms" comes every now and then, and at
 *				once if a count goes beyond COUNT. A later "reach" takes the place of
 *				this one, and has the only answer; a "step" ends it, with one answer
 *				to both. For jobs that have sent "comms"
 *	beside PID		the process PID, as the client sees it, uses a GPU of this process,
 *				and has sent "comms", too: a pause that would release the whole GPU
 *				ends with "end unsupported" (checkpoint/release/unsupported.h)
 *	commit			go on as a pause
 *	abort			run on; the answer ends with "end busy"
 *
 * A hold may call off a resume that waits for memory. The job is at rest then, and stays paused or goes
 * on with the resume, as the client orders; it is "held drained", and TIMEOUT_MS does not end that.
 *
 * A client that disconnects before it sends commit means abort. The end of TIMEOUT_MS does as well.
 *
 * A client that holds several processes may be killed, or stopped, between two commits. So that all
 * processes then do the same, the client may send an eventfd(2) with its request (SCM_RIGHTS), the
 * same one to all of them, and write to it before the first commit. A process that finds it written
 * takes that for a commit. There is one write, and it precedes every commit. So whenever the client
 * ends, either no process has a commit and none finds a write, or all processes without a commit
 * find the write. No process reads the eventfd, and it ends with the connections. Jobs that do not
 * know it ignore it.
 *
 * regain sends "held drained 0" when the memory is back; commit lets the program run, abort takes
 * the memory again. A client that disconnects means commit. A resume of a job without its lease (below) waits
 * until the job has its turn. TIMEOUT_MS bounds that wait, too: then the job stays paused. To a regain the job
 * answers "end turn": the request is done, and the job runs when it gets its turn, together with the others.
 *
 * With a regain the client may send a pact (pact.h), in place of the eventfd. Then the processes that
 * got it decide, and the client has no part in that: its orders are ignored, and so is its end. It may stop
 * the pact. A resume that is under way begins again with a pact that comes, unless it follows a later one.
 * Jobs that do not know pacts take orders, as without one.
 *
 * A pause, resume or regain that wants the state which another client holds takes over from that
 * client: a pause or a resume lets the process go on at once, a regain gets "held" again. Each
 * client that holds may send commit; only the last one can abort. A pause by signal does not take
 * over: the process stays held, and after an abort it is paused alone, or the signal is refused.
 *
 * A regain that finds a resume which nobody holds gets "held" as well, when the memory is back, and
 * does not stop it. If that resume would wait longer for memory than TIMEOUT_MS, it begins again as
 * the regain.
 *
 * For a program that lets jobs take turns on a GPU:
 *
 *	yield BYTES [TIMEOUT_MS] [hold|context]	take at least BYTES more of the memory that cudaw
 *				carries off the GPUs, of each at least the same part of what is there, or
 *				all. A running job first comes to rest, within TIMEOUT_MS. "context": if no
 *				memory is left then, the context goes, too
 *	room BYTES [hold]	so much of it may be on the GPUs, in all; a later line says more
 *
 * The first yield of a client takes the lease of the job, which then does not run until all of its
 * memory is back. One client can have the lease. Its connection stays open after an "end"; it sends
 * no other requests. During a yield the job sends
 *
 *	freed BYTES		running total of this yield
 *
 * every 256 MiB and at its end. Then comes
 *
 *	mapped BYTES		all that is mapped now
 *
 * and yield_us, yield_bytes and yield_phase, as of a pause. If the context was to go,
 *
 *	context out		it is released, and comes back with the memory
 *	context stays WHY	it is not: the driver or the job cannot do it
 *	context restored	later, in the operation in which it comes back, whatever becomes of the memory
 *
 * If it has too little host memory, before the "end nomem ...":
 *
 *	short GROUP		in the control group of that number, or, if it is 0, on the machine
 *
 * The last line is "end ok", or "end CODE ..." if less was freed and more is there. A job of which nothing was
 * freed after a failure runs on, and sends no "mapped". After a room line the job takes memory
 * back, and sends "mapped" every 256 MiB and whenever there is no room for more. When all is back,
 * it sends "ready" and "end ok", runs, and has its lease again. If it cannot take memory back, for
 * another reason than that the GPU has none free, it sends "end failed ..." and keeps what it has;
 * a further room line tries again. An "end" that answers a room line, and the "held" of a fill (below), come
 * directly behind the line
 *
 *	filled
 *
 * as they may cross a yield, which is answered next. A fill that a yield calls off has no answer. During a
 * yield and a fill progress lines come, too, also while the fill waits for memory that others have. Memory
 * always goes in the same order, of each GPU the last addresses first, and comes back in the opposite order. Bytes count
 * on all GPUs of the process together.
 *
 * With "hold" the job comes to rest as for "hold", and runs on as for "regain", together with
 * others: it sends "held" and "comms", and takes the orders step, reach and commit; a yield also
 * takes abort, which ends it with "end busy". A fill sends "held drained 0" alone, and again if it was called
 * off, for a trim, say, and has its memory back once more. A yield with "hold" frees memory when the
 * processes that share memory have all found room for theirs. After that a process that shares memory does not
 * run on, whatever fails: it sends "mapped" also if nothing was freed. Orders that come after the "end" are
 * ignored.
 *
 * If the client disconnects, the job has its lease again, and resumes. After a yield with "hold" others of its job
 * may lack memory: it resumes by a pact, as with regain, that the client has sent before with a line
 *
 *	pact			for that. A later one takes its place; one without a descriptor says that there is none
 *
 * or is paused without one, until another client takes the lease, or somebody asks. If it runs, the others of the pact
 * do not wait for it. The user's pause counts beside the lease: then all memory goes out, and nothing comes back before
 * the user resumes the job. If somebody asks for a snapshot with "image", the job ends the connection.
 *
 * With CUDAW_TURNS a job connects to a daemon that lets jobs take turns, cudawd (daemon.h), once it has
 * GPU memory or finds none. From then on the daemon is a client that has the lease. The job begins:
 *
 *	turns VERSION		PROTOCOL_TURNS
 *	id ID, name NAME, pid PID, command TEXT		as in its status; the pid is that of its namespace
 *	class interactive|batch
 *	weight N		from 1 to 100
 *	context-after S		after how many seconds of another job's wait its context may be taken
 *				(docs/turns.md); 0: never. No line: as the daemon is set
 *	context out|restored	a yield has taken its context once, which is still out, or is back
 *	need UUID MAPPED TOTAL	bytes of memory that cudaw carries on that GPU: mapped now, and when the
 *				job runs, with its context if that was released. A line for each GPU
 *				with such memory
 *	state STATE
 *	joined			the end of the introduction
 *
 * The daemon answers
 *
 *	welcome IDLE_MS		the job takes turns; it is idle after so many ms without calls
 *	end CODE MESSAGE	or it does not. After "end invalid" the job does not come back
 *
 * and sends, beside yield and room,
 *
 *	idle IDLE_MS		from now on it is idle after so many ms
 *	watch, unwatch		somebody waits for memory, or nobody: whether the job is idle matters
 *	pong			the answer to "ping"
 *	try SERIAL, no SERIAL	the allocation may be tried again, or fails
 *	behind PID NAME		who has the memory that the job waits for: a process, in the daemon's
 *				namespace, and its name, if it has one and is the same user's. When it
 *				changes; 0: nobody, or it waits no more
 *	stop			see "stops"
 *	rescue			the process was stopped by SIGSTOP, and is continued so that it gives its
 *				memory. It says "stops", if it has not yet, and after "stop" it stops itself
 *				again, unless SIGCONT has come once more
 *	unfit UUID NEEDS THERE	the job gets no turn: it needs so many bytes on that GPU, and so many are
 *				there, as others have the rest. "unfit - 0 0": that is over
 *	short GROUP		one of the jobs has said so: see above
 *
 * The job sends, beside what belongs to yield and room,
 *
 *	need, state		when they change: need within a second, or 100 ms while it is watched, and
 *				between the last "freed" of a yield and its "mapped". All needs come once
 *				more before "grow", behind the end of a yield or fill, and before a new
 *				state. None comes while memory moves. 0 0: nothing is left there
 *	want			while the lease is gone: the program waits in a call, or the user has
 *				resumed the job. Said once, and again after each pause; it holds until the
 *				job has its lease again, also over a pause
 *	idle MS			while it is watched: no call has come for so long, none is inside, and the
 *				GPU has done all work
 *	busy			after "idle": the program calls again, or the job was paused, and has its
 *				lease. "want", "ends" and "grow" say the same
 *	ends			the same as "want", once more: the program handles SIGTERM, and is to get
 *				its turn before others
 *	stops			the process is to stop (SIGTSTP): the daemon takes all memory of its job.
 *				"stop" says that this is done: from then on it asks for nothing that needs
 *				an answer, and gives no memory, before
 *	goes			it need not stop, or goes on
 *	grow SERIAL UUID BYTES	an allocation of so many bytes waits in its thread: the driver has no
 *				memory. Only calls of the program that allocate device memory, or make
 *				a context, wait. After "try" one that finds none again gets a new serial.
 *				If tries fail for 10 s, it fails. Its thread may be gone when the answer
 *				comes
 *	forget SERIAL	that allocation waits no more, though it has no answer: a signal has ended the
 *				wait, or the thread has ended, or left it by longjmp()
 *	pinned SERIAL UUID BYTES	the same as "grow", during a stream capture: the job cannot come to rest
 *				before the answer. Of the jobs on a GPU one waits so, others get "no"
 *
 *	ping			something waits for the daemon, which has said nothing for 2 s: it
 *				answers "pong"
 *
 * A connection that ends means: no daemon. So does a ping without an answer for 8 s. Allocations that wait
 * are told to a new daemon, if there is one within 10 s; else they are tried once more, and fail. Nothing
 * else waits for the daemon. The job connects again, at least every 5 s; if it could not come to rest alone,
 * at multiples of 5 s of CLOCK_MONOTONIC, as the other processes of its job do. Each side skips lines with
 * keys that it does not know. Both check the other's user.
 *
 * A command connects to the daemon as jobs do, and sends one line:
 *
 *	list		describe the GPUs and the members
 *	events		the last events, oldest first
 *	events follow	the same, and then each one when it comes, until the command disconnects
 *	give WORD	members whose id, name or PID is WORD give their turn to those who wait
 *	set KEY=VALUE...	settings (tools/daemon/conf.h), until the daemon ends. If one is wrong, a line
 *			"note TEXT" says why, and none is taken
 *	drain UUID	nobody gets a turn on that GPU any more; undrain UUID: they do again
 *	launch		the program of this process may become a member: the daemon does not end
 *			before the process does
 *
 * set, drain and undrain are for the daemon's user and root. The answer to "list":
 *
 *	daemon PID VERSION
 *	gpu UUID TOTAL USED OTHERS CAPACITY STATE	bytes; TOTAL 0: NVML does not know it;
 *						STATE: open, drained, or excluded by the settings
 *	member NUMBER PID UID STATE		the lines up to the next "member" belong to it. PID: as
 *						the daemon sees it, 0 if it does not; STATE: a word
 *						of the books (tools/daemon/turns/turns.h)
 *	id ID, name NAME, command TEXT, class CLASS, weight N
 *	need UUID MAPPED TOTAL			a GPU; bytes that are there, and that it needs
 *	turn WAITS LEFT TURNS NUMBER		milliseconds that it waits, and that its turn lasts at
 *						least, 0: not; how many turns it got; the member
 *						that it waits for, or 0
 *
 * An event is a line "event NUMBER UNIX_MS KIND PID UID ID NAME TEXT"; "-" stands for no NAME.
 * The names and commands of another user's members are left out, except for root. All answers end
 * with a line "end". A line "unfit UUID NEEDS THERE" of a member is there if it gets no turn, as above, and
 * "context out|restored" if its context is out, or was once: it runs beside nobody.
 *
 * A directory in a line is the rest of that line (snapshot_dir_check_path()).
 *
 * Keys of status.
 *
 *	protocol	1
 *	id		the job: six hexadecimal digits, the same in all its processes (CUDAW_JOB)
 *	name		CUDAW_NAME; absent if not set
 *	pid, uid
 *	command		the program's command line, cut at 200 bytes
 *	state		one of the states below
 *	gpu		ORDINAL UUID NAME; a line for each device with carried memory or a context
 *	limit		BYTES HAS; behind its gpu line, if the job has a memory limit on that GPU: the limit,
 *			and what all processes of the job have of it
 *	addressing	mapped or translated (CUDAW_ADDRESSING), or native (CUDAW_TO_DRIVER=memory: all memory
 *			is the driver's); then the reason, if that is not the mode that the settings ask for
 *	carried		bytes of GPU memory that cudaw carries through a pause
 *	left_to_driver	bytes of GPU memory of this process left to the driver (docs/limits.md)
 *	paused		bytes of a paused job that are in host memory
 *	spilled		bytes of a paused job that are on disk (CUDAW_SPILL_DIR)
 *	released	1: nothing of a paused job is on the GPU; absent: something is, or it runs
 *	snapshot	the directory that alone has a paused job's GPU memory; absent: none
 *	pool		bytes of host memory kept for the next pause: pinned, or made ready
 *	pause_us pause_bytes resume_us resume_bytes	the last pause and resume; absent before;
 *			whole microseconds, and bytes of GPU memory
 *	pause_phase resume_phase	NAME US; a line for each of its phases (engine.h), in order
 *	waits WHAT BYTES US	the job waits for a turn, for memory of a resume, or for that of an
 *				allocation ("turn", "memory", "allocation"), so many bytes, since then;
 *				absent: it does not. While an allocation waits the state is "running"
 *	reason		the reason for the state, or for the failure of the last request; what it waits for
 *	failed_us	how long ago that request failed; absent: reason is of something else
 *	signals		a signal that pauses or resumes does not reach the job, and why; absent:
 *			both reach it, or are not used
 *	no_turns	why the job takes no turns though CUDAW_TURNS or cudaw.conf names a daemon; absent:
 *			it does, or is not to
 */

/*
 * The versions grow when a line, key or word goes away or changes its meaning; new ones come without that, as both
 * sides skip what they do not know. The requests pause, resume and trim mean the same in all versions: they are
 * sent to a process that was named by its PID, whatever its version (docs/install.md). Changes before the first release
 * need no new version.
 */
#define PROTOCOL_VERSION 1    /* between a job and the command */
#define PROTOCOL_TURNS   1    /* between a job and the daemon */
#define PROTOCOL_LINE    4096 /* the longest line, newline included */
#define PROTOCOL_MESSAGE 512  /* the longest message of an "end", its NUL included */
#define PROTOCOL_WORDS   64   /* of a line, the most beside a directory and GPUs */
#define PROTOCOL_STEP    4096 /* the most calls of one step */

/*
 * The lines, in a table for each direction: X(ID, word, parts). Of the parts, which common/protocol/lines.h parses,
 * each follows one space, and one in capitals may be missing:
 *
 *	n	a number
 *	w	a word
 *	u	the UUID of a GPU
 *	e	the code of an end
 *	t	text to the end of the line; T: it may be empty, too
 */

/* From a client to a job: requests. */
#define REQUEST_MAP(X)                       \
	X(REQUEST_STATUS, "status", "")      \
	X(REQUEST_PAUSE, "pause", "NW")      \
	X(REQUEST_HOLD, "hold", "NW")        \
	X(REQUEST_RESUME, "resume", "N")     \
	X(REQUEST_REGAIN, "regain", "N")     \
	X(REQUEST_TRIM, "trim", "")          \
	X(REQUEST_SNAPSHOT, "snapshot", "t") \
	X(REQUEST_RECALL, "recall", "t")     \
	X(REQUEST_DONE, "done", "t")         \
	X(REQUEST_MOVED, "moved", "t")       \
	X(REQUEST_MEMORY, "memory", "")      \
	X(REQUEST_YIELD, "yield", "nNW")     \
	X(REQUEST_ROOM, "room", "nW")

/* From a client that holds the job: orders. */
#define ORDER_MAP(X)                   \
	X(ORDER_STEP, "step", "n")     \
	X(ORDER_REACH, "reach", "nt")  \
	X(ORDER_BESIDE, "beside", "n") \
	X(ORDER_PACT, "pact", "")      \
	X(ORDER_COMMIT, "commit", "")  \
	X(ORDER_ABORT, "abort", "")

/* From the daemon to a job, beside yield, room and orders. */
#define TURN_MAP(X)                     \
	X(TURN_WELCOME, "welcome", "n") \
	X(TURN_IDLE, "idle", "n")       \
	X(TURN_WATCH, "watch", "")      \
	X(TURN_UNWATCH, "unwatch", "")  \
	X(TURN_PONG, "pong", "")        \
	X(TURN_TRY, "try", "n")         \
	X(TURN_NO, "no", "n")           \
	X(TURN_BEHIND, "behind", "nT")  \
	X(TURN_UNFIT, "unfit", "wnn")   \
	X(TURN_SHORT, "short", "n")     \
	X(TURN_STOP, "stop", "")        \
	X(TURN_RESCUE, "rescue", "")    \
	X(TURN_END, "end", "eT")

/* From a job to whoever asks it, or has its lease. */
#define REPORT_MAP(X)                         \
	X(REPORT_ID, "id", "t")               \
	X(REPORT_NAME, "name", "t")           \
	X(REPORT_PID, "pid", "n")             \
	X(REPORT_COMMAND, "command", "T")     \
	X(REPORT_STATE, "state", "t")         \
	X(REPORT_PROGRESS, "progress", "wnn") \
	X(REPORT_NOTE, "note", "t")           \
	X(REPORT_READY, "ready", "")          \
	X(REPORT_HELD, "held", "wnN")         \
	X(REPORT_COMMS, "comms", "t")         \
	X(REPORT_FREED, "freed", "n")         \
	X(REPORT_MAPPED, "mapped", "n")       \
	X(REPORT_FILLED, "filled", "")        \
	X(REPORT_CONTEXT, "context", "t")     \
	X(REPORT_SHORT, "short", "n")         \
	X(REPORT_END, "end", "eT")

/* From a job to its client, beside these: its status. */
#define STATUS_MAP(X)                                   \
	X(STATUS_PROTOCOL, "protocol", "n")             \
	X(STATUS_UID, "uid", "n")                       \
	X(STATUS_GPU, "gpu", "nwT")                     \
	X(STATUS_LIMIT, "limit", "nn")                  \
	X(STATUS_ADDRESSING, "addressing", "wT")        \
	X(STATUS_CARRIED, "carried", "n")               \
	X(STATUS_LEFT_TO_DRIVER, "left_to_driver", "n") \
	X(STATUS_PAUSED, "paused", "n")                 \
	X(STATUS_SPILLED, "spilled", "n")               \
	X(STATUS_RELEASED, "released", "n")             \
	X(STATUS_SNAPSHOT, "snapshot", "t")             \
	X(STATUS_POOL, "pool", "n")                     \
	X(STATUS_PAUSE_US, "pause_us", "n")             \
	X(STATUS_PAUSE_BYTES, "pause_bytes", "n")       \
	X(STATUS_PAUSE_PHASE, "pause_phase", "wn")      \
	X(STATUS_RESUME_US, "resume_us", "n")           \
	X(STATUS_RESUME_BYTES, "resume_bytes", "n")     \
	X(STATUS_RESUME_PHASE, "resume_phase", "wn")    \
	X(STATUS_WAITS, "waits", "wnn")                 \
	X(STATUS_WAITING, "waiting", "t")               \
	X(STATUS_REASON, "reason", "t")                 \
	X(STATUS_FAILED_US, "failed_us", "n")           \
	X(STATUS_SIGNALS, "signals", "t")               \
	X(STATUS_NO_TURNS, "no_turns", "t")

/* From a job to the daemon, beside these. */
#define MEMBER_MAP(X)                                 \
	X(MEMBER_TURNS, "turns", "n")                 \
	X(MEMBER_CLASS, "class", "t")                 \
	X(MEMBER_WEIGHT, "weight", "n")               \
	X(MEMBER_CONTEXT_AFTER, "context-after", "n") \
	X(MEMBER_NEED, "need", "unn")                 \
	X(MEMBER_JOINED, "joined", "")                \
	X(MEMBER_WANT, "want", "")                    \
	X(MEMBER_IDLE, "idle", "n")                   \
	X(MEMBER_BUSY, "busy", "")                    \
	X(MEMBER_GROW, "grow", "nun")                 \
	X(MEMBER_PINNED, "pinned", "nun")             \
	X(MEMBER_FORGET, "forget", "n")               \
	X(MEMBER_ENDS, "ends", "")                    \
	X(MEMBER_STOPS, "stops", "")                  \
	X(MEMBER_GOES, "goes", "")                    \
	X(MEMBER_PING, "ping", "")

/* From a command to the daemon. */
#define COMMAND_MAP(X)                   \
	X(COMMAND_LAUNCH, "launch", "")  \
	X(COMMAND_LIST, "list", "")      \
	X(COMMAND_EVENTS, "events", "T") \
	X(COMMAND_GIVE, "give", "t")     \
	X(COMMAND_SET, "set", "t")       \
	X(COMMAND_DRAIN, "drain", "u")   \
	X(COMMAND_UNDRAIN, "undrain", "u")

/* From the daemon to a command. */
#define LISTED_MAP(X)                        \
	X(LISTED_DAEMON, "daemon", "nt")     \
	X(LISTED_GPU, "gpu", "unnnnW")       \
	X(LISTED_MEMBER, "member", "nnnw")   \
	X(LISTED_ID, "id", "T")              \
	X(LISTED_NAME, "name", "t")          \
	X(LISTED_COMMAND, "command", "T")    \
	X(LISTED_CLASS, "class", "t")        \
	X(LISTED_WEIGHT, "weight", "n")      \
	X(LISTED_NEED, "need", "unn")        \
	X(LISTED_UNFIT, "unfit", "unn")      \
	X(LISTED_CONTEXT, "context", "t")    \
	X(LISTED_TURN, "turn", "nnnn")       \
	X(LISTED_EVENT, "event", "nnwnnwwT") \
	X(LISTED_NOTE, "note", "t")          \
	X(LISTED_END, "end", "eT")

/* The ids, of the lines that one side reads. Both readers of a job's reports have them first. */
#define LINE_ENUM(id, word, parts) id,
enum to_job { REQUEST_MAP(LINE_ENUM) ORDER_MAP(LINE_ENUM) TURN_MAP(LINE_ENUM) TO_JOB };
enum { REPORT_MAP(LINE_ENUM) REPORTS };
enum from_job { STATUS_FIRST = REPORTS - 1, STATUS_MAP(LINE_ENUM) FROM_JOB };
enum to_daemon {
	MEMBER_FIRST = REPORTS - 1,
	MEMBER_MAP(LINE_ENUM) COMMAND_MAP(LINE_ENUM) TO_DAEMON
};
enum from_daemon { LISTED_MAP(LINE_ENUM) FROM_DAEMON };
#undef LINE_ENUM

/* States of a process, as status reports them. */
#define STATE_MAP(X)                                              \
	X(RUNNING, "running")                                     \
	X(PAUSING, "pausing")                                     \
	X(PAUSED, "paused")                                       \
	X(RESUMING, "resuming")                                   \
	X(WAITING, "waiting") /* for GPU memory, or for a turn */ \
	X(FAILED, "failed")   /* a resume failed; the data is kept, and it can be tried again */

#define STATE_ENUM(name, text) STATE_##name,
enum job_state { STATE_MAP(STATE_ENUM) STATES };
#undef STATE_ENUM

/* Codes of the last line. A code of a later version counts as "failed". */
#define END_MAP(X)                                                                               \
	X(OK, "ok")                                                                              \
	X(TIMEOUT, "timeout")         /* kernels did not end, or memory was not free, in time */ \
	X(NOMEM, "nomem")             /* too little host memory; nothing was changed */          \
	X(UNSUPPORTED, "unsupported") /* this driver or device cannot do it */                   \
	X(BUSY, "busy")               /* another pause or resume is under way */                 \
	X(AGAIN, "again")             /* not now, but soon: the request is to be repeated */     \
	X(TURN, "turn")               /* a regain: the job runs when it gets its turn */         \
	X(DENIED, "denied")           /* neither the same user nor root */                       \
	X(INVALID, "invalid")         /* not a request */                                        \
	X(FAILED, "failed")           /* anything else, in MESSAGE */

#define END_ENUM(name, text) END_##name,
enum end_code { END_NONE, END_MAP(END_ENUM) ENDS };
#undef END_ENUM

#endif
