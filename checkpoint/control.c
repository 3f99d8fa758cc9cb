/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control.h"
#include "checkpoint/captures.h"
#include "checkpoint/claims.h"
#include "checkpoint/contexts.h"
#include "checkpoint/devices.h"
#include "checkpoint/forked.h"
#include "checkpoint/gate.h"
#include "checkpoint/hold.h"
#include "checkpoint/rundir.h"
#include "checkpoint/server.h"
#include "checkpoint/signals.h"
#include "checkpoint/signals_reach.h"
#include "checkpoint/snapshot_codec.h"
#include "checkpoint/snapshot_dir.h"
#include "checkpoint/spill.h"
#include "checkpoint/trace.h"
#include "vmem/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_PREFIX "control: "
#include "vmem/log.h"

#define GIB             (double)(1UL << 30)
#define PROGRESS_MS     100
#define PREPARE_MS      1000
#define CALLER_MS       1000  /* until it is seen that a snapshot's command has ended */
#define SIGNALS_MS      2000  /* from the start on */
#define READY_S         1     /* for those who wait to be told that the program runs on */
#define END_PATIENCE_MS 10000 /* for GPU memory, when a handler of the program wants to end it */

#define CONTRARY "a later request asked for the contrary"

enum operation { OP_NONE, OP_PAUSE, OP_RESUME, OP_TRIM, OP_SNAPSHOT, OP_TIDY };

static const char *const op_names[] = {"do nothing",       "pause",  "resume", "trim",
				       "write a snapshot", "tidy up"};
static const struct cuda_driver *drv;
FORKS_LOCK(start_lock);
static bool started; /* under start_lock */
static int pipe_fds[2] = {-1, -1};
static double signals_due_ms; /* of look_at_signals(); 0: from now on SIGNALS_MS */

/* Of the control thread, but for op and exiting, which op_lock guards. */
static struct {
	enum job_state state;
	bool want_paused;
	bool others_want; /* the same, as others than a snapshot have asked for last */
	bool again;       /* what the operation does was cancelled, and has been asked for again */
	bool want_trim;
	enum release_choice want_release;
	bool want_snapshot;
	struct snapshot_order want_order;
	int want_timeout_ms;
	bool want_hold;
	int timeout_ms; /* of the operation under way */
	bool ending;    /* the program handles a signal that ends it */
	bool refused;   /* its calls fail, so that it can end; there is no way back */
	struct engine_progress progress;
	struct hold hold;
	struct engine_result result;
	bool writes; /* the operation is a snapshot, or a pause that is written to one */
	struct snapshot_order order;
	struct engine_result written;
	bool unfinished; /* the last snapshot is yet to be done, as its caller says */
	bool done;       /* it is, and that is to be acted upon */
	struct caller caller;
	struct engine_result last[2]; /* [0] resume, [1] pause */
	char reason[528];             /* a result's message with "resume: " before it */
	int cuda;                     /* the driver's CUDA version */
} ctl;
FORKS_LOCK(op_lock);
static enum operation op;
static bool op_ended; /* the engine is done; the control thread has yet to look */
static bool op_ready; /* the engine waits for the control thread to say that the program runs on */
static pthread_cond_t ready_said = PTHREAD_COND_INITIALIZER;
static bool exiting;

static void wake(void)
{
	char byte = 0;

	if (write(pipe_fds[1], &byte, 1) < 0)
		return; /* full: it will wake up */
}

/* The pause has been before: it is what the snapshot took, too. */
static void add_pause(struct snapshot_facts *facts)
{
	const struct engine_result *pause = &ctl.last[1];

	for (size_t i = 0; i < pause->nphases; i++)
		facts->phases[facts->nphases++] =
			(struct snapshot_phase){pause->phases[i].name, pause->phases[i].ms};
}

static void op_run(void)
{
	struct snapshot_facts facts = {.cuda = ctl.cuda};
	struct engine_writing writing = {&ctl.order, &facts, &ctl.written};

	facts.devices = devices_all(&facts.ndevices);
	switch (op) {
	case OP_PAUSE:
		engine_pause(drv, ctl.timeout_ms, ctl.writes ? &writing : NULL, &ctl.progress,
			     &ctl.result);
		claims_drop();
		break;
	case OP_RESUME:
		engine_resume(drv, ctl.timeout_ms, &ctl.progress, &ctl.result);
		claims_drop();
		break;
	case OP_TRIM:
		engine_trim(drv, CONTROL_PAUSE_TIMEOUT_MS, &ctl.progress, &ctl.result);
		break;
	case OP_SNAPSHOT:
		add_pause(&facts);
		engine_snapshot(drv, &writing, &ctl.progress);
		break;
	default:
		engine_tidy(drv, &ctl.progress.cancel);
	}
}

static void op_run_traced(void)
{
	const struct engine_result *result = op == OP_SNAPSHOT ? &ctl.written : &ctl.result;
	struct trace_event event;
	bool traced = trace_begin(&event, "cudaw");

	if (traced) {
		trace_thread_name("cudaw");
		trace_go(&event);
	}
	op_run();
	if (!traced)
		return;
	trace_phase(NULL);
	trace_stop(&event);
	if (op != OP_TIDY) {
		trace_text(&event, "result", result->code);
		trace_number(&event, "bytes", result->bytes);
	}
	trace_end(&event, op_names[op], 0);
}

/* The program may end as soon as it runs: who waits for that has heard of it by then. */
static void await_ready_said(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += READY_S;
	pthread_mutex_lock(&op_lock);
	op_ready = true;
	wake();
	while (op_ready && !pthread_cond_clockwait(&ready_said, &op_lock, CLOCK_MONOTONIC, &until))
		;
	op_ready = false;
	pthread_mutex_unlock(&op_lock);
}

static void say_ready(void)
{
	server_send_ready();
	pthread_mutex_lock(&op_lock);
	op_ready = false;
	pthread_cond_signal(&ready_said);
	pthread_mutex_unlock(&op_lock);
}

static void *op_main(void *arg)
{
	(void)arg;
	op_run_traced();
	pthread_mutex_lock(&op_lock);
	op_ended = true;
	pthread_mutex_unlock(&op_lock);
	wake();
	return NULL;
}

static void on_exit_paused(void);

/* Of the state of the job. */
static bool is_change(enum operation what)
{
	return what == OP_PAUSE || what == OP_RESUME;
}

/* True when an operation was started. */
static bool op_start(enum operation what)
{
	pthread_t thread;
	int error;

	pthread_mutex_lock(&op_lock);
	if (exiting) {
		pthread_mutex_unlock(&op_lock);
		return false;
	}
	op = what;
	op_ended = false;
	ctl.timeout_ms = ctl.want_timeout_ms;
	ctl.writes = ctl.want_snapshot && (what == OP_PAUSE || what == OP_SNAPSHOT);
	if (ctl.writes) {
		ctl.want_snapshot = false;
		ctl.order = ctl.want_order;
	}
	/* An image needs the whole GPU released, and so what can be carried is judged by that. */
	if (ctl.writes && ctl.order.image)
		release_choose(RELEASE_ALL);
	else if (what == OP_PAUSE)
		release_choose(ctl.want_release);
	ctl.again = false;
	memset(&ctl.progress, 0, sizeof(ctl.progress));
	ctl.progress.phase = "start";
	ctl.progress.ready = await_ready_said;
	if (is_change(what) && ctl.want_hold) {
		hold_init(&ctl.hold, wake);
		ctl.progress.hold = &ctl.hold;
	}
	if (is_change(what))
		ctl.reason[0] = '\0';
	/*
	 * Handlers run in reverse order: registered again at every pause, ours comes before those
	 * that libraries loaded since the last one registered, which may call CUDA.
	 */
	if (what == OP_PAUSE)
		atexit(on_exit_paused);
	error = pthread_create(&thread, NULL, op_main, NULL);
	if (error) {
		op = OP_NONE;
		ctl.want_snapshot |= ctl.writes;
		ctl.writes = false;
		pr_err("no thread to %s: %s", op_names[what], strerror(error));
	} else {
		pthread_detach(thread);
	}
	pthread_mutex_unlock(&op_lock);
	return !error;
}

/* What was to come after a pause does not. */
static void forget_snapshot(const char *code, const char *why)
{
	struct engine_result result = {.code = code};

	if (!ctl.want_snapshot)
		return;
	ctl.want_snapshot = false;
	ctl.unfinished = false;
	snprintf(result.message, sizeof(result.message), "%.511s", why);
	server_finish_snapshot(&result);
}

/*
 * A pause or a resume failed, and is to be begun anew: it has been asked for again meanwhile, or it
 * was a pause for a snapshot alone, and others have asked for one.
 */
static bool is_wanted_still(void)
{
	bool pause = op == OP_PAUSE;
	bool by_others = pause && ctl.writes && ctl.order.pause && ctl.others_want;

	return (ctl.again || by_others) && engine_is_paused() != pause &&
	       strcmp(ctl.result.code, END_OK) != 0;
}

/* What failed is not tried again by itself. */
static void give_up(bool pause)
{
	if (pause)
		forget_snapshot(ctl.result.code, ctl.reason);
	if (ctl.want_paused == pause)
		ctl.want_paused = engine_is_paused();
	if (pause)
		ctl.others_want &= ctl.want_paused;
	else if (!ctl.unfinished)
		ctl.others_want = ctl.want_paused;
	/* Before the snapshot is done it was that which was in the way. */
	if (ctl.ending && engine_is_paused() && !ctl.unfinished) {
		gate_refuse(CUDA_ERROR_DEINITIALIZED);
		ctl.refused = true;
		ctl.state = STATE_FAILED;
		snprintf(
			ctl.reason, sizeof(ctl.reason),
			"a signal was to end the program while it was paused, and there was no GPU "
			"memory to resume it: its CUDA calls fail");
	}
}

/* A pause or a resume is done. */
static void op_judge(void)
{
	bool pause = op == OP_PAUSE;
	bool ok = !strcmp(ctl.result.code, END_OK);
	bool patient = !strcmp(ctl.result.code, END_TIMEOUT) || !strcmp(ctl.result.code, END_BUSY);
	const char *name = !pause ? "resume" : ctl.writes && ctl.order.pause ? "snapshot" : "pause";

	if (!engine_is_paused())
		ctl.state = STATE_RUNNING;
	else
		ctl.state = ok || (!pause && patient) ? STATE_PAUSED : STATE_FAILED;
	if (ok) {
		ctl.last[pause] = ctl.result;
		ctl.unfinished &= pause || ctl.want_snapshot;
		snprintf(ctl.reason, sizeof(ctl.reason), "%s", ctl.result.note);
	} else {
		snprintf(ctl.reason, sizeof(ctl.reason), "%s: %s", name, ctl.result.message);
		pr_warn("%s", ctl.reason);
		if (!is_wanted_still())
			give_up(pause);
	}
	if (!engine_is_paused())
		ctl.ending = false;
}

/* Where nobody asked by the socket, nobody would hear of a failure. */
static void judge_snapshot(enum operation ended)
{
	bool failed = strcmp(ctl.written.code, END_OK);
	bool pause_failed = ended == OP_PAUSE && strcmp(ctl.result.code, END_OK);

	if (failed && !pause_failed) {
		snprintf(ctl.reason, sizeof(ctl.reason), "snapshot: %s", ctl.written.message);
		pr_warn("%s", ctl.reason);
	}
	if (failed)
		ctl.unfinished = false;
	if (failed && ctl.want_paused && !ctl.others_want)
		control_want(false, 0);
	server_finish_snapshot(&ctl.written);
}

static void finish_with(bool paused, const char *code, const char *message)
{
	struct engine_result result = {.code = code};

	snprintf(result.message, sizeof(result.message), "%.511s", message);
	server_finish(paused, &result);
}

static void op_finish(void)
{
	enum operation ended = op;
	bool again = is_change(ended) && is_wanted_still();
	/* Not where a pause has ended the resume, nor where another resume is to follow. */
	bool failed = op == OP_RESUME && !ctl.want_paused && !ctl.done && !again &&
		      strcmp(ctl.result.code, END_OK) != 0;

	if (is_change(ended))
		op_judge();
	pthread_mutex_lock(&op_lock);
	op = OP_NONE;
	pthread_mutex_unlock(&op_lock);
	if (again)
		finish_with(ended != OP_PAUSE, END_BUSY, CONTRARY);
	else if (is_change(ended))
		server_finish(ended == OP_PAUSE, &ctl.result);
	else if (ended == OP_TRIM)
		server_finish_trim(&ctl.result);
	if (failed)
		server_finish_done(&ctl.result);
	if (ctl.writes)
		judge_snapshot(ended);
	ctl.writes = false;
}

/* What a paused job has in a snapshot alone is not to be written over. */
static void lock_snapshot(void)
{
	struct engine_result result = {.code = END_FAILED};
	struct snapshot_error error;

	if (!engine_lock_place(&error))
		return;
	snprintf(result.message, sizeof(result.message), "%.255s: %.250s", engine_held_in(),
		 error.text);
	snprintf(ctl.reason, sizeof(ctl.reason), "snapshot: %s", result.message);
	pr_warn("%s", ctl.reason);
	server_finish_done(&result);
}

/* The pause ends with its snapshot, unless others want it. */
static void finish_snapshot(void)
{
	if (ctl.unfinished && ctl.others_want)
		lock_snapshot();
	else if (ctl.unfinished)
		control_want(false, ctl.ending ? END_PATIENCE_MS : 0);
	ctl.unfinished = ctl.done = false;
}

/* Start what is wanted, or tell those who wait that it is so already. */
static void settle(void)
{
	bool paused = ctl.state != STATE_RUNNING;

	if (op != OP_NONE)
		return;
	if (ctl.refused) {
		finish_with(true, END_FAILED, ctl.reason);
		finish_with(false, END_FAILED, ctl.reason);
		server_finish_trim(&ctl.result);
		server_finish_snapshot(&ctl.result);
		server_finish_done(&ctl.result);
		return;
	}
	if (ctl.done)
		finish_snapshot();
	if (ctl.want_trim) {
		ctl.want_trim = false;
		if (op_start(OP_TRIM))
			return;
		server_finish_trim(
			&(struct engine_result){.code = END_FAILED, .message = "no thread for it"});
	}
	if (ctl.want_snapshot && ctl.want_paused == paused) {
		if (op_start(OP_SNAPSHOT))
			return;
		forget_snapshot(END_FAILED, "no thread for it");
	}
	if (ctl.want_paused == paused) {
		server_finish(paused, NULL);
		finish_with(!paused, END_BUSY, CONTRARY);
		server_finish_done(NULL);
		if (engine_is_untidy())
			op_start(OP_TIDY);
	} else if (!op_start(ctl.want_paused ? OP_PAUSE : OP_RESUME)) {
		finish_with(ctl.want_paused, END_FAILED, "no thread for it");
		forget_snapshot(END_FAILED, "no thread for it");
		ctl.want_paused = paused;
		if (paused && !ctl.unfinished)
			lock_snapshot();
	}
}

void control_want(bool paused, int timeout_ms)
{
	ctl.want_paused = ctl.others_want = paused;
	ctl.again = is_change(op) && paused == (op == OP_PAUSE) &&
		    __atomic_load_n(&ctl.progress.cancel, __ATOMIC_RELAXED);
	ctl.want_timeout_ms = timeout_ms;
	ctl.want_hold = false;
	if (paused)
		ctl.want_release = RELEASE_AS_SET;
	if (!paused)
		forget_snapshot(END_BUSY, "a later request asked for a resume");
	if (op == OP_TIDY || op == OP_TRIM || (op == OP_RESUME && paused) ||
	    ((op == OP_PAUSE || op == OP_SNAPSHOT) && !paused))
		__atomic_store_n(&ctl.progress.cancel, true, __ATOMIC_RELAXED);
}

void control_choose(enum release_choice release)
{
	ctl.want_release = release;
}

static void end_tidying(void)
{
	if (op == OP_TIDY)
		__atomic_store_n(&ctl.progress.cancel, true, __ATOMIC_RELAXED);
}

void control_want_trim(void)
{
	ctl.want_trim = true;
	end_tidying();
}

void control_want_hold(bool paused, int timeout_ms)
{
	control_want(paused, timeout_ms);
	ctl.want_hold = true;
}

void control_order(const struct hold_order *order)
{
	if (ctl.progress.hold)
		hold_give_order(ctl.progress.hold, order);
}

void control_abort_hold(bool paused)
{
	if (ctl.want_paused == paused &&
	    (!ctl.progress.hold || !hold_is_committed(ctl.progress.hold)))
		control_want(!paused, paused ? 0 : CONTROL_PAUSE_TIMEOUT_MS);
}

void control_end_hold(void)
{
	const struct hold_order commit = {.commit = true};

	ctl.want_hold = false;
	control_order(&commit);
}

int control_want_snapshot(const struct snapshot_order *order, int timeout_ms,
			  const struct caller *caller)
{
	if (ctl.want_snapshot || ctl.writes || ctl.unfinished ||
	    (op == OP_RESUME && engine_held_in()))
		return -EBUSY;
	if (order->pause && !ctl.want_paused) {
		control_want(true, timeout_ms);
		ctl.others_want = false;
	}
	ctl.want_snapshot = true;
	ctl.want_order = *order;
	ctl.unfinished = order->pause || order->image;
	if (caller)
		ctl.caller = *caller;
	end_tidying();
	return 0;
}

void control_abort_image(void)
{
	const struct snapshot_order *order = ctl.want_snapshot ? &ctl.want_order : &ctl.order;

	if ((!ctl.want_snapshot && !ctl.writes) || !order->image)
		return;
	if (op == OP_SNAPSHOT)
		__atomic_store_n(&ctl.progress.cancel, true, __ATOMIC_RELAXED);
	else if (!ctl.others_want)
		control_want(false, 0);
	else
		forget_snapshot(END_BUSY, "who asked for it has hung up");
}

/* It is written, as far as that is ours to do. */
static bool snapshot_is_to_be_done(void)
{
	return ctl.unfinished && !ctl.done && !ctl.want_snapshot && !ctl.writes;
}

void control_done(const char *path)
{
	end_tidying();
	ctl.done |= snapshot_is_to_be_done() && !strcmp(path, ctl.order.path);
}

/* A caller that ended before it said that its snapshot is done will not say it. */
static void look_for_caller(void)
{
	if (!snapshot_is_to_be_done() || is_change(op) || !caller_is_gone(&ctl.caller))
		return;
	if (!caller_is_ours(&ctl.caller)) {
		ctl.unfinished = false;
		ctl.others_want = ctl.want_paused;
		return;
	}
	pr_warn("snapshot in %s: process %d, which was to finish it, has ended: the job %s",
		ctl.order.path, ctl.caller.pid, ctl.others_want ? "stays paused" : "runs on");
	control_done(ctl.order.path);
}

int control_moved(const char *path, const CUcheckpointGpuPair *pairs, size_t count,
		  struct snapshot_error *error)
{
	int ret = op == OP_NONE ? engine_moved(path, pairs, count, error)
				: snapshot_fail(error, -EBUSY, "an operation is under way");

	/* It goes on from a snapshot as whoever restores it says. */
	if (!ret) {
		devices_move(pairs, count);
		ctl.unfinished = false;
		ctl.others_want = ctl.want_paused;
	}
	return ret;
}

/* CUDAW_SNAPSHOT_DIR: a pause by signal goes into a snapshot. */
static void snapshot_by_signal(void)
{
	const char *path = secure_getenv("CUDAW_SNAPSHOT_DIR");
	const char *codec = secure_getenv("CUDAW_SNAPSHOT_COMPRESS");
	struct snapshot_order order = {.incremental = true, .codec = SNAPSHOT_RAW, .hold = true};
	struct snapshot_error error;

	if (!path || !*path || engine_held_in())
		return;
	if (codec && *codec && !snapshot_codec_parse(codec, &order.codec))
		pr_err("CUDAW_SNAPSHOT_COMPRESS=%s: expected none, lz4 or zstd", codec);
	if (snapshot_dir_check_path(path, 0, &error)) {
		pr_err("CUDAW_SNAPSHOT_DIR=%s: %s", path, error.text);
		return;
	}
	strcpy(order.path, path);
	control_want_snapshot(&order, 0, NULL);
}

static void take_signals(void)
{
	switch (signals_take_wish()) {
	case WISH_PAUSE:
		control_want(true, CONTROL_PAUSE_TIMEOUT_MS);
		snapshot_by_signal();
		break;
	case WISH_RESUME:
		control_want(false, 0);
		break;
	case WISH_NONE:
		break;
	}
	if (!signals_take_end())
		return;
	if (op == OP_RESUME || op == OP_PAUSE || ctl.state != STATE_RUNNING) {
		ctl.ending = true;
		/* A resume that may wait starts anew, with a limit. */
		if (op == OP_RESUME && ctl.timeout_ms != END_PATIENCE_MS)
			__atomic_store_n(&ctl.progress.cancel, true, __ATOMIC_RELAXED);
		control_want(false, END_PATIENCE_MS);
	}
}

/* Once, when the program has set up its signals: nobody may ask for the status. */
static void look_at_signals(void)
{
	char why[SIGNALS_REACH_TEXT];

	if (!signals_due_ms)
		signals_due_ms = gate_now_ms() + SIGNALS_MS;
	if (gate_now_ms() < signals_due_ms)
		return;
	signals_due_ms = INFINITY;
	if (signals_unreachable(why, sizeof(why)))
		pr_warn("%s", why);
}

/* How long to sleep when nothing happens. */
static int patience_ms(void)
{
	if (server_has_waiters())
		return PROGRESS_MS;
	if (ctl.unfinished)
		return CALLER_MS;
	if (engine_prepares())
		return PREPARE_MS;
	return isinf(signals_due_ms) ? -1 : SIGNALS_MS;
}

static void *control_main(void *arg)
{
	struct pollfd fds[1 + SERVER_FDS];
	struct hold_report report;
	char bytes[64];

	(void)arg;
	for (;;) {
		int n = server_poll_fds(fds + 1);
		bool ended, ready;

		fds[0] = (struct pollfd){.fd = pipe_fds[0], .events = POLLIN};
		if (poll(fds, 1 + n, patience_ms()) < 0 && errno != EINTR)
			return NULL;
		while (read(pipe_fds[0], bytes, sizeof(bytes)) > 0)
			;
		pthread_mutex_lock(&op_lock);
		ended = op_ended;
		op_ended = false;
		ready = op_ready;
		pthread_mutex_unlock(&op_lock);
		if (ready)
			say_ready();
		if (ended)
			op_finish();
		take_signals();
		look_for_caller();
		look_at_signals();
		server_handle(fds + 1, n);
		settle();
		if (ctl.progress.hold && hold_take_report(ctl.progress.hold, &report))
			server_send_report(&report);
		if (is_change(op) || op == OP_SNAPSHOT)
			server_send_progress(&ctl.progress);
	}
}

enum job_state control_state(const struct engine_progress **progress)
{
	if (progress)
		*progress = is_change(op) ? &ctl.progress : NULL;
	if (op == OP_PAUSE)
		return __atomic_load_n(&ctl.progress.settled, __ATOMIC_RELAXED) ? STATE_PAUSED
										: STATE_PAUSING;
	if (op == OP_RESUME)
		return __atomic_load_n(&ctl.progress.waiting, __ATOMIC_RELAXED) ? STATE_WAITING
										: STATE_RESUMING;
	return ctl.state;
}

const struct engine_result *control_last(bool paused)
{
	return &ctl.last[paused];
}

const char *control_reason(void)
{
	if (control_state(NULL) == STATE_WAITING)
		snprintf(ctl.reason, sizeof(ctl.reason),
			 "resume: waits for %.2f GiB of GPU memory%s", engine_paused_bytes() / GIB,
			 engine_is_released() ? ", and for what the context takes" : "");
	return ctl.reason;
}

/*
 * The process exits. Its remaining destructors may call CUDA; while it is paused they must get an
 * error, not wait. An operation that has begun is seen through: the memory that it copies is about
 * to go away.
 */
static void on_exit_paused(void)
{
	if (!forks_adopt())
		return;
	pthread_mutex_lock(&op_lock);
	exiting = true;
	__atomic_store_n(&ctl.progress.cancel, true, __ATOMIC_RELAXED);
	while (op != OP_NONE && !op_ended) {
		pthread_mutex_unlock(&op_lock);
		usleep(1000);
		pthread_mutex_lock(&op_lock);
	}
	pthread_mutex_unlock(&op_lock);
	if (engine_is_paused())
		gate_refuse(CUDA_ERROR_DEINITIALIZED);
}

static void on_exit_any(void)
{
	on_exit_paused();
	if (forks_is_ours() && started)
		rundir_unlink(getpid());
}

static void begin_anew_in_child(void)
{
	gate_after_fork();
	pthread_cond_init(&ready_said, NULL);
	op = OP_NONE;
	op_ended = op_ready = exiting = false;
	if (!started)
		return;
	/* As the driver does in the child of a process that has used it. */
	gate_refuse(CUDA_ERROR_NOT_INITIALIZED);
	server_close();
	forked_let_go();
	spill_close();
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	signals_due_ms = 0;
	started = false;
}
FORKS_CHILD(begin_anew_in_child);

/* What the children of the program are to have nothing of; the folder is there by now. */
static void watch_forks(void)
{
	char path[PATH_MAX + sizeof("/" RUNDIR_CLAIMS)], real[PATH_MAX];
	const char *why;

	forked_watch("/dev/nvidia");
	if (rundir_path(geteuid(), path, PATH_MAX, &why) || !realpath(path, real))
		return;
	snprintf(path, sizeof(path), "%s/" RUNDIR_CLAIMS, real);
	forked_watch(path);
	snprintf(path, sizeof(path), "%s/GPU-", real);
	forked_watch(path);
}

static int start_thread(void)
{
	sigset_t all, mask;
	pthread_t thread;
	int error;

	/* The program's handlers run in the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	error = pthread_create(&thread, NULL, control_main, NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (error)
		return -error;
	pthread_setname_np(thread, "cudaw");
	pthread_detach(thread);
	return 0;
}

void control_start(const struct cuda_driver *driver)
{
	int error;

	pthread_mutex_lock(&start_lock);
	if (started)
		goto out;
	started = true;
	drv = driver;
	error = gate_init();
	if (!error && pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK))
		error = -errno;
	if (error) {
		pr_err("this job cannot be paused: %s", strerror(-error));
		goto out;
	}
	driver->cuDriverGetVersion(&ctl.cuda);
	devices_find(driver);
	server_init();
	watch_forks();
	atexit(on_exit_any);
	error = start_thread();
	if (error) {
		pr_err("this job cannot be paused: no control thread: %s", strerror(-error));
		server_close();
		rundir_unlink(getpid());
	} else {
		signals_notify(pipe_fds[1]);
	}
out:
	pthread_mutex_unlock(&start_lock);
}
