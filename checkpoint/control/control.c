/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/control.h"
#include "checkpoint/control/answers.h"
#include "checkpoint/control/clients.h"
#include "checkpoint/control/history.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/joint.h"
#include "checkpoint/control/operation.h"
#include "checkpoint/control/server.h"
#include "checkpoint/control/turn/turn.h"
#include "checkpoint/control/signals/stop.h"
#include "checkpoint/control/waits.h"
#include "checkpoint/control/signals/signals_reach.h"
#include "checkpoint/control/signals/signals_take.h"
#include "checkpoint/control/wake.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/growth.h"
#include "checkpoint/host/spill.h"
#include "checkpoint/release/devices.h"
#include "common/clock.h"
#include "common/system/forked.h"
#include "common/system/forks.h"
#include "common/protocol/rundir.h"
#include "common/protocol/quota.h"
#include "common/text.h"
#include "common/system/threads.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_PREFIX "control: "
#include "common/log.h"

#define PROGRESS_MS 100
#define PREPARE_MS  1000
#define CALLER_MS   1000 /* between two looks whether a snapshot's command has ended */
#define SIGNALS_MS  2000 /* from the start to look_at_signals() */
#define ROBBED_MS   1000 /* between two looks at descriptors that the program closes */
#define BLIND_MS    100  /* between two looks if poll() fails */

FORKS_LOCK(start_lock);
/* Under start_lock: control_start() was called; a thread can be started; it runs. */
static bool started, prepared, running;
static uint64_t own_start;    /* rundir_start_time() of the process that began this */
static bool robbed;           /* the program has closed descriptors of ours, and may again */
static double signals_due_ms; /* clock_ms() of look_at_signals(); 0: not yet set */

/* Warn once, when the program has set up its signals: perhaps nobody asks for the status. */
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

/* How long to sleep when nothing happens. */
static double sleep_ms(void)
{
	double ms = clock_shorter(clock_shorter(server_patience_ms(), turn_patience_ms()),
				  clock_shorter(waits_patience_ms(), stop_patience_ms()));

	if (clients_wait() || joint_is_on())
		ms = clock_shorter(ms, PROGRESS_MS);
	if (job_now()->activity == ACTIVITY_STARVED)
		ms = clock_shorter(ms, JOB_RETRY_MS);
	if (job_awaits_caller())
		ms = clock_shorter(ms, CALLER_MS);
	if (!isinf(signals_due_ms))
		ms = clock_shorter(ms, SIGNALS_MS);
	/*
	 * There may be no pipe to wake this thread, and it does not hear of requests to a lost
	 * socket.
	 */
	if (robbed)
		ms = clock_shorter(ms, ROBBED_MS);
	return engine_prepares() ? clock_shorter(ms, PREPARE_MS) : ms;
}

/*
 * A process image (CRIU) that is started again has our pipe and our socket, under other inodes.
 * They are taken over: a second socket could not have the same name. False if a lack of descriptors
 * hides whether this is a process image.
 */
static bool take_restored(void)
{
	uint64_t start = rundir_start_time(getpid());

	if (start == RUNDIR_START_UNKNOWN) {
		pr_err_once("the program has closed our socket or pipe, and no descriptor is left "
			    "for another: %s; it is tried again",
			    error_text(EMFILE));
		return false;
	}
	/* If a start time is missing, the program may have closed them. */
	if (!start || !own_start || own_start == RUNDIR_START_UNKNOWN || start == own_start)
		return true;
	own_start = start;
	wake_take_restored();
	server_take_restored();
	log_restored();
	quota_restored();
	return true;
}

/*
 * A program that closes all descriptors closes ours too. poll() still waits for the files, and
 * reports the end of the pipe; then all is opened again. True if something was lost.
 */
static bool look_for_lost(void)
{
	bool pipe_lost, server_lost;

	if ((wake_is_lost() || server_is_lost()) && !take_restored()) {
		robbed = true;
		return true;
	}
	pipe_lost = wake_is_lost();
	server_lost = server_reopen();
	if (pipe_lost) {
		wake_close();
		wake_open();
	}
	robbed |= pipe_lost || server_lost;
	quota_look();
	return pipe_lost || server_lost;
}

/*
 * Sleep until something happens, and read what clients sent. If poll() fails, for lack of memory or
 * because a limit is below the number of descriptors, the thread looks everywhere from time to
 * time.
 */
static void sleep_and_read(void)
{
	struct pollfd fds[1 + SERVER_FDS];
	int n = server_poll_fds(fds + 1);

	/* A negative descriptor is skipped. */
	fds[0] = (struct pollfd){.fd = wake_reader(), .events = POLLIN};
	if (poll(fds, 1 + n, clock_poll(sleep_ms())) < 0) {
		if (errno != EINTR) {
			pr_err_once("poll: %s; looking every %d ms instead", error_text(errno),
				    BLIND_MS);
			usleep(BLIND_MS * 1000);
		}
		n = 0;
	}
	if (look_for_lost())
		n = 0;
	wake_drain();
	server_receive(fds + 1, n);
}

/* A job that its turn has taken off the GPU may be paused without an operation. */
static void look_at_history(void)
{
	if (control_operation(job_now()) == OP_NONE)
		history_state(control_wants_paused(job_now()));
}

static void look_once(void)
{
	sleep_and_read();
	if (operation_is_ready()) {
		answers_ready(control_operation(job_now()) == OP_FILL);
		operation_say_ready();
	}
	if (operation_take_end())
		job_end_operation(turn_gave);
	signals_take();
	job_look_for_caller();
	look_at_signals();
	job_retry();
	clients_handle();
	job_settle();
	look_at_history();
	joint_look(job_now());
	job_send_news();
	turn_look();
	stop_look();
	waits_look();
	server_sweep();
}

static void *control_main(void *arg)
{
	threads_own_floats();
	stop_begin();
	for (;;)
		look_once();
	return arg;
}

static void on_exit_any(void)
{
	if (forks_is_ours())
		growth_end();
	operation_see_through();
}

/* Last of all: until the program's own exit handlers have run, they may wait for a resume. */
__attribute__((destructor)) static void unlink_socket(void)
{
	if (forks_is_ours() && started) {
		server_unlink();
		quota_end();
	}
}

static void begin_anew_in_child(void)
{
	gate_after_fork();
	operation_after_fork();
	if (!started)
		return;
	/* The driver does the same in the child of a process that has used it. */
	gate_refuse(CUDA_ERROR_NOT_INITIALIZED);
	server_close();
	turn_after_fork();
	joint_after_fork();
	forked_let_go();
	spill_close();
	wake_close();
	signals_due_ms = 0;
	started = prepared = running = false;
}
FORKS_CHILD(begin_anew_in_child);

/* Files that children of the program must not have; the directory exists by now. */
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

/* What a control thread needs, once a process. False, after an error message, if it fails. */
static bool prepare(const struct cuda_driver *driver)
{
	int error = gate_init();

	if (!error)
		error = wake_open();
	if (error) {
		pr_err("this job cannot be paused: %s", error_text(-error));
		return false;
	}
	own_start = rundir_start_time(getpid());
	operation_init(driver, wake_up);
	devices_find(driver);
	server_init();
	history_init();
	watch_forks();
	atexit(on_exit_any);
	return true;
}

static bool begin(void)
{
	int error;

	turn_init(wake_up);
	error = threads_start("cudaw", control_main);
	if (!error) {
		wake_up(); /* a signal may have come before there was a pipe */
		return true;
	}
	growth_end(); /* nobody would answer */
	pr_err_once(
		"this job cannot be paused: no control thread: %s; the next cuInit() tries again",
		error_text(-error));
	server_close();
	server_unlink();
	return false;
}

void control_start(const struct cuda_driver *driver)
{
	pthread_mutex_lock(&start_lock);
	/* First, so that the child of a fork that comes meanwhile releases what is made here. */
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
