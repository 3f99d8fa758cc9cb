/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/control.h"
#include "checkpoint/control/answers.h"
#include "checkpoint/control/caller.h"
#include "checkpoint/control/state.h"
#include "checkpoint/release/devices.h"
#include "common/forked.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/control/operation.h"
#include "common/ownfd.h"
#include "checkpoint/control/request.h"
#include "common/rundir.h"
#include "common/text.h"
#include "checkpoint/control/server.h"
#include "checkpoint/control/signals.h"
#include "checkpoint/control/signals_reach.h"
#include "checkpoint/snapshot/codec.h"
#include "checkpoint/snapshot/dir.h"
#include "checkpoint/host/spill.h"
#include "common/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "control: "
#include "common/log.h"
#include "common/clock.h"

#define PROGRESS_MS 100
#define PREPARE_MS  1000
#define CALLER_MS   1000 /* until it is seen that a snapshot's command has ended */
#define SIGNALS_MS  2000 /* from the start on */
#define RETRY_MS    1000 /* until what had no thread is tried again */
#define BLIND_MS    100  /* between two looks where poll() fails */

FORKS_LOCK(start_lock);
/* Under start_lock: control_start() was called; a thread can be started; there is one. */
static bool started, prepared, running;
static struct ownfd pipe_ends[2] = {OWNFD_NONE, OWNFD_NONE};
static uint64_t own_start;    /* rundir_start_time(): of the process that these belong to */
static bool robbed;           /* the program has closed descriptors of ours, and may do so again */
static double signals_due_ms; /* of look_at_signals(); 0: from now on SIGNALS_MS */

/* The control thread's. */
static struct control_state state;
static struct snapshot_order want_order;
static struct caller caller;
static struct engine_result last[2]; /* [0] resume, [1] pause */
static char reason[528];             /* a result's message with "resume: " before it */
static struct hold_report report;    /* the last one of the operation under way */
static bool reported;
static double retry_ms; /* clock_ms() */
static bool starved;    /* the last operation had no thread, which has been said */

static void wake(void)
{
	int fd = ownfd_get(&pipe_ends[1]);
	char byte = 0;

	if (fd >= 0 && write(fd, &byte, 1) < 0)
		return; /* full: it will wake up */
}

static bool is_change(enum operation op)
{
	return op == OP_PAUSE || op == OP_RESUME;
}

static enum job_state job_state(void)
{
	const struct engine_progress *progress = operation_progress();
	enum operation op = control_operation(&state);

	if (op == OP_PAUSE)
		return __atomic_load_n(&progress->settled, __ATOMIC_RELAXED) ? STATE_PAUSED
									     : STATE_PAUSING;
	if (op == OP_RESUME)
		return __atomic_load_n(&progress->waiting, __ATOMIC_RELAXED) ? STATE_WAITING
									     : STATE_RESUMING;
	return state.rest;
}

static struct answers_facts facts(void)
{
	struct answers_facts f = {job_state(), &last[1], &last[0], reason};

	if (f.state == STATE_WAITING)
		snprintf(reason, sizeof(reason), "resume: waits for %.2f GiB of GPU memory%s",
			 engine_paused_bytes() / GIB,
			 engine_is_released() ? ", and for what the context takes" : "");
	return f;
}

static void finish(enum server_wait whom, const struct engine_result *result)
{
	const struct answers_facts f = facts();

	answers_finish(whom, result, &f);
}

static void finish_with(enum server_wait whom, const char *code, const char *message)
{
	struct engine_result result = {.code = code};

	snprintf(result.message, sizeof(result.message), "%.511s", message);
	finish(whom, &result);
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
	snprintf(reason, sizeof(reason), "snapshot: %s", result.message);
	pr_warn("%s", reason);
	finish(WAITS_DONE, &result);
}

static void give_answer(const struct control_action *action)
{
	if (action->code)
		finish_with(action->whom, action->code, action->reason);
	else if (action->answer == ANSWER_RESULT)
		finish(action->whom, operation_result());
	else if (action->answer == ANSWER_WRITTEN)
		finish(action->whom, operation_written());
	else
		finish(action->whom, NULL);
}

static int take(const struct control_event *event);

static void start(const struct control_action *action)
{
	int error = operation_start(action->op, &action->options, &want_order, &last[1]);
	struct control_event event = {.kind = EV_NO_START, .exiting = error == -ECANCELED};
	char why[128];

	if (!error) {
		starved = reported = false;
		if (is_change(action->op))
			reason[0] = '\0';
		return;
	}
	snprintf(why, sizeof(why), "no thread for it: %s",
		 event.exiting ? "the process exits" : strerror(-error));
	if (!starved && !event.exiting)
		pr_err("an operation cannot begin: %s; a signal's is tried again", why);
	starved = true;
	retry_ms = clock_ms() + RETRY_MS;
	event.reason = why;
	take(&event);
}

static void perform(const struct control_action *action)
{
	static const struct hold_order commit = {.commit = true};

	switch (action->kind) {
	case ACT_START:
		start(action);
		break;
	case ACT_CANCEL:
		operation_cancel();
		break;
	case ACT_COMMIT:
		hold_give_order(operation_hold(), &commit);
		break;
	case ACT_REPORT:
		if (reported)
			answers_report(&report);
		break;
	case ACT_ANSWER:
		give_answer(action);
		break;
	case ACT_LOCK:
		lock_snapshot();
		break;
	case ACT_REFUSE:
		gate_refuse(CUDA_ERROR_DEINITIALIZED);
		snprintf(reason, sizeof(reason), "%s", action->reason);
	}
}

static void perform_all(const struct control_actions *actions)
{
	for (size_t i = 0; i < actions->n; i++)
		perform(&actions->list[i]);
}

static int take(const struct control_event *event)
{
	struct control_actions actions = {0};
	int ret = control_take(&state, event, &actions);

	perform_all(&actions);
	return ret;
}

/* Begin what is wanted, or tell those who wait that it is so already. */
static void settle(void)
{
	struct control_actions actions = {0};

	control_decide(&state, engine_is_untidy(), &actions);
	perform_all(&actions);
}

static void note_failure(const char *what, const char *message)
{
	snprintf(reason, sizeof(reason), "%s: %s", what, message);
	pr_warn("%s", reason);
}

static void end_operation(void)
{
	const struct engine_result *result = operation_result(), *written = operation_written();
	enum operation op = control_operation(&state);
	bool pause = op == OP_PAUSE, writes = state.snapshot == SNAPSHOT_WRITTEN;
	bool ok = !is_change(op) || !strcmp(result->code, END_OK);
	const char *what = !pause ? "resume" : writes && state.order_pause ? "snapshot" : "pause";
	struct control_event event = {.kind = EV_ENDED,
				      .code = result->code,
				      .written = written->code,
				      .paused = engine_is_paused(),
				      .reason = reason};

	if (!ok) {
		note_failure(what, result->message);
	} else if (is_change(op)) {
		last[pause] = *result;
		snprintf(reason, sizeof(reason), "%s", result->note);
	}
	/* Where nobody asked by the socket, nobody would hear of a failure. */
	if (writes && ok && strcmp(written->code, END_OK))
		note_failure("snapshot", written->message);
	take(&event);
}

/* A caller that ended before it said that its snapshot is done will not say it. */
static void look_for_caller(void)
{
	const char *path = operation_order()->path;

	if (!control_awaits_done(&state) || is_change(control_operation(&state)) ||
	    !caller_is_gone(&caller))
		return;
	if (!caller_is_ours(&caller)) {
		take(&(struct control_event){.kind = EV_MOVED});
		return;
	}
	pr_warn("snapshot in %s: process %d, which was to finish it, has ended: the job %s", path,
		caller.pid, state.wishes[WISHER_USER] ? "stays paused" : "runs on");
	take(&(struct control_event){.kind = EV_DONE, .matches = true});
}

static int want_snapshot(const struct snapshot_order *order, int timeout_ms,
			 const struct caller *asks)
{
	const struct control_event event = {.kind = EV_SNAPSHOT,
					    .options = {.timeout_ms = timeout_ms},
					    .by_signal = !asks,
					    .pause = order->pause,
					    .image = order->image,
					    .held = engine_held_in() != NULL};
	int ret = take(&event);

	if (ret)
		return ret;
	want_order = *order;
	if (asks)
		caller = *asks;
	return 0;
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
	want_snapshot(&order, 0, NULL);
}

static void take_signals(void)
{
	struct control_event event = {.by_signal = true};

	switch (signals_take_wish()) {
	case WISH_PAUSE:
		event.kind = EV_PAUSE;
		event.options.timeout_ms = CONTROL_PAUSE_TIMEOUT_MS;
		take(&event);
		snapshot_by_signal();
		break;
	case WISH_RESUME:
		event.kind = EV_RESUME;
		take(&event);
		break;
	case WISH_NONE:
		break;
	}
	if (signals_take_end())
		take(&(struct control_event){.kind = EV_END});
}

/* Once, when the program has set up its signals: nobody may ask for the status. */
static void look_at_signals(void)
{
	char why[SIGNALS_REACH_TEXT];

	if (!signals_due_ms)
		signals_due_ms = clock_ms() + SIGNALS_MS;
	if (clock_ms() < signals_due_ms)
		return;
	signals_due_ms = INFINITY;
	if (signals_unreachable(why, sizeof(why)))
		pr_warn("%s", why);
}

/* Answer @c at once. */
static void turn_away(struct client *c, const char *end)
{
	server_say(c, "end %s", end);
	server_end(c);
}

static void take_change(struct client *c, const struct request *r)
{
	bool pause = r->word == REQUEST_PAUSE;
	const struct control_event event = {
		.kind = pause ? EV_PAUSE : EV_RESUME,
		.options = {.timeout_ms = r->timeout_ms, .release = r->release},
		.client = r->hold ? c->id : 0};

	if (pause && r->hold && job_state() == STATE_PAUSING) {
		turn_away(c, END_BUSY " another pause is under way");
		return;
	}
	if (r->hold && c->token_lost) {
		turn_away(c, END_FAILED " the program has no free descriptor (RLIMIT_NOFILE)");
		return;
	}
	c->waits = pause ? WAITS_PAUSED : WAITS_RUNNING;
	c->holds = r->hold;
	take(&event);
}

static void take_snapshot(struct client *c, const struct request *r)
{
	struct caller asks;

	caller_find(ownfd_get(&c->own), &asks);
	if (want_snapshot(&r->order, r->timeout_ms, &asks))
		turn_away(c, END_BUSY " another snapshot is under way, or read back");
	else
		c->waits = WAITS_WRITTEN;
}

static void take_done(struct client *c, const char *path)
{
	const struct control_event event = {.kind = EV_DONE,
					    .matches = !strcmp(path, operation_order()->path)};

	c->waits = WAITS_DONE;
	take(&event);
}

/* At once: what says where the memory is must not wait for what reads it. */
static void take_move(struct client *c, const struct request *r)
{
	struct snapshot_error error;
	int ret = control_operation(&state) == OP_NONE
			  ? engine_moved(r->path, r->pairs, r->npairs, &error)
			  : snapshot_fail(&error, -EBUSY, "an operation is under way");

	/* Of a directory that cannot be looked into yet nothing is known. */
	if (ret) {
		server_say(c, "end %s %s: %s",
			   ret == -EBUSY || ret == -EAGAIN ? END_FAILED : END_INVALID, r->path,
			   error.text);
	} else {
		take(&(struct control_event){.kind = EV_MOVED});
		server_say(c, "end " END_OK);
	}
	server_end(c);
}

static void take_request(struct client *c, char *line)
{
	static struct request request;
	const char *expected = request_parse(line, &request);

	if (expected) {
		server_say(c, "end " END_INVALID " expected %s, found %s", expected, line);
		server_end(c);
		return;
	}
	switch (request.word) {
	case REQUEST_STATUS: {
		const struct answers_facts f = facts();

		answers_status(c, &f);
		server_end(c);
		break;
	}
	case REQUEST_PAUSE:
	case REQUEST_RESUME:
		take_change(c, &request);
		break;
	case REQUEST_TRIM:
		c->waits = WAITS_TRIMMED;
		take(&(struct control_event){.kind = EV_TRIM});
		break;
	case REQUEST_SNAPSHOT:
		take_snapshot(c, &request);
		break;
	case REQUEST_DONE:
		take_done(c, request.path);
		break;
	case REQUEST_MOVED:
		take_move(c, &request);
	}
}

/* A line of the client that holds the job. */
static void take_order(struct client *c, const char *line)
{
	struct request_order order;
	const char *expected = request_parse_order(line, &order);

	if (order.step) {
		if (state.hold == HOLD_OPEN)
			hold_give_order(operation_hold(), &(struct hold_order){.step = order.step});
		return;
	}
	take(&(struct control_event){.kind = order.commit ? EV_COMMIT : EV_ABORT, .client = c->id});
	if (!expected)
		return;
	server_say(c, "end " END_INVALID " expected %s, found %s", expected, line);
	server_end(c);
}

/* What all who hold together look at (protocol.h) says that they are to go on. */
static bool is_agreed(const struct client *c)
{
	struct pollfd token = {.fd = server_token(c), .events = POLLIN};

	return token.fd >= 0 && poll(&token, 1, 0) > 0 && token.revents & POLLIN;
}

/* It hung up. What it asked for is not stopped by that, unless it is one to see it through. */
static void leave(struct client *c)
{
	if (c->waits == WAITS_WRITTEN)
		take(&(struct control_event){.kind = EV_CALL_OFF});
	else if (c->holds)
		take(&(struct control_event){
			.kind = EV_HOLDER_GONE, .client = c->id, .agreed = is_agreed(c)});
	server_end(c);
}

static void handle_clients(void)
{
	char *line;

	for (struct client *c = server_next(NULL); c; c = server_next(c)) {
		while ((line = server_line(c))) {
			if (c->holds)
				take_order(c, line);
			else
				take_request(c, line);
		}
		if (c->gone && !c->ended)
			leave(c);
	}
}

static bool has_waiters(void)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits != WAITS_NOT)
			return true;
	return false;
}

static int less(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* How long to sleep when nothing happens. */
static int patience_ms(void)
{
	int ms = server_patience_ms();

	if (has_waiters())
		ms = less(ms, PROGRESS_MS);
	if (state.activity == ACTIVITY_STARVED)
		ms = less(ms, RETRY_MS);
	if (control_awaits_done(&state))
		ms = less(ms, CALLER_MS);
	if (!isinf(signals_due_ms))
		ms = less(ms, SIGNALS_MS);
	/* There may be no pipe to be woken by, and what comes to a lost socket is not heard. */
	if (robbed)
		ms = less(ms, RETRY_MS);
	return engine_prepares() ? less(ms, PREPARE_MS) : ms;
}

static int open_pipe(void)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	for (int i = 0; i < 2; i++)
		ownfd_set(&pipe_ends[i], fds[i]);
	return 0;
}

static void close_pipe(void)
{
	for (int i = 0; i < 2; i++)
		ownfd_close(&pipe_ends[i]);
}

static bool pipe_is_lost(void)
{
	return ownfd_is_lost(&pipe_ends[0]) || ownfd_is_lost(&pipe_ends[1]) || pipe_ends[0].fd < 0;
}

/*
 * A process image (CRIU) that is started again has our pipe and our socket, which are other files
 * by now. They are taken: a second socket could not have the first one's name. False where it
 * cannot be seen whether this is such an image.
 */
static bool take_restored(void)
{
	static bool said;
	uint64_t start = rundir_start_time(getpid());

	if (start == RUNDIR_START_UNKNOWN) {
		if (!said)
			pr_err("the program has closed our socket or pipe, and no descriptor is left "
			       "for another: %s; it is tried again",
			       strerror(EMFILE));
		said = true;
		return false;
	}
	/* Without a start time on both sides the program may have closed them. */
	if (!start || !own_start || own_start == RUNDIR_START_UNKNOWN || start == own_start)
		return true;
	own_start = start;
	for (int i = 0; i < 2; i++)
		ownfd_take_restored(&pipe_ends[i]);
	server_take_restored();
	signals_notify(ownfd_get(&pipe_ends[1]));
	return true;
}

/*
 * A program that closes files which are not its own takes ours, too. poll() still waited for them,
 * and tells of the pipe's end; then all is opened anew. True where something was lost.
 */
static bool look_for_lost(void)
{
	bool pipe_lost, server_lost;

	if ((pipe_is_lost() || server_is_lost()) && !take_restored()) {
		robbed = true;
		return true;
	}
	pipe_lost = pipe_is_lost();
	server_lost = server_reopen();
	if (pipe_lost) {
		signals_notify(-1);
		close_pipe();
		if (!open_pipe())
			signals_notify(pipe_ends[1].fd);
	}
	robbed |= pipe_lost || server_lost;
	return pipe_lost || server_lost;
}

/*
 * Sleep until something happens, and read what clients sent. A poll() that fails, as for lack of
 * memory or with a limit below the number of descriptors, is no end: then it is looked everywhere,
 * now and then.
 */
static void sleep_and_read(void)
{
	static bool said;
	struct pollfd fds[1 + SERVER_FDS];
	char bytes[64];
	int n = server_poll_fds(fds + 1);
	int fd = ownfd_get(&pipe_ends[0]);

	/* A negative descriptor is skipped. */
	fds[0] = (struct pollfd){.fd = fd, .events = POLLIN};
	if (poll(fds, 1 + n, patience_ms()) < 0) {
		if (errno != EINTR && !said)
			pr_err("poll: %s; looks every %d ms instead", strerror(errno), BLIND_MS);
		if (errno != EINTR) {
			said = true;
			usleep(BLIND_MS * 1000);
		}
		n = 0;
	}
	if (look_for_lost())
		n = 0;
	fd = ownfd_get(&pipe_ends[0]);
	while (fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0)
		;
	server_receive(fds + 1, n);
}

static void send_news(void)
{
	enum operation op = control_operation(&state);
	struct hold *hold = operation_hold();

	if (is_change(op) && hold && hold_take_report(hold, &report)) {
		reported = true;
		answers_report(&report);
	}
	if (is_change(op) || op == OP_SNAPSHOT)
		answers_progress(operation_progress());
}

static void look_once(void)
{
	sleep_and_read();
	if (operation_is_ready()) {
		answers_ready();
		operation_say_ready();
	}
	if (operation_take_end())
		end_operation();
	take_signals();
	look_for_caller();
	look_at_signals();
	if (clock_ms() >= retry_ms)
		take(&(struct control_event){.kind = EV_RETRY});
	handle_clients();
	settle();
	send_news();
	server_sweep();
}

static void *control_main(void *arg)
{
	for (;;)
		look_once();
	return arg;
}

static void on_exit_any(void)
{
	operation_see_through();
	if (forks_is_ours() && started)
		rundir_unlink(getpid());
}

static void begin_anew_in_child(void)
{
	gate_after_fork();
	operation_after_fork();
	if (!started)
		return;
	/* As the driver does in the child of a process that has used it. */
	gate_refuse(CUDA_ERROR_NOT_INITIALIZED);
	server_close();
	forked_let_go();
	spill_close();
	close_pipe();
	signals_due_ms = 0;
	started = prepared = running = false;
}
FORKS_CHILD(begin_anew_in_child);

/* What the children of the program are to have nothing of; the directory is there by now. */
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

/* What a control thread needs, once a process. False after saying why there is none. */
static bool prepare(const struct cuda_driver *driver)
{
	int error = gate_init();

	if (!error)
		error = open_pipe();
	if (error) {
		pr_err("this job cannot be paused: %s", strerror(-error));
		return false;
	}
	own_start = rundir_start_time(getpid());
	operation_init(driver, wake);
	devices_find(driver);
	server_init();
	watch_forks();
	atexit(on_exit_any);
	return true;
}

static bool begin(void)
{
	static bool said;
	int error = start_thread();

	if (!error) {
		signals_notify(pipe_ends[1].fd);
		return true;
	}
	if (!said)
		pr_err("this job cannot be paused: no control thread: %s; the next cuInit() tries "
		       "again",
		       strerror(-error));
	said = true;
	server_close();
	rundir_unlink(getpid());
	return false;
}

void control_start(const struct cuda_driver *driver)
{
	pthread_mutex_lock(&start_lock);
	/* First, so that the child of a fork that comes meanwhile lets go of what is made. */
	if (!started) {
		started = true;
		prepared = prepare(driver);
	} else if (prepared && !running) {
		server_init();
	}
	if (prepared && !running)
		running = begin();
	pthread_mutex_unlock(&start_lock);
}
