/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/operation.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/plan.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/ledger/ranks.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/snapshot/manifest_write.h"
#include "common/system/forks.h"
#include "common/system/threads.h"
#include "common/protocol/lines.h"
#include "common/limits.h"
#include "common/trace/trace.h"
#include "vmem/cuda_driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define READY_S          1     /* for the control thread to tell clients that the program runs */
#define PROBE_TIMEOUT_MS 20    /* for the GPU to end what it does */
#define TRIM_TIMEOUT_MS  30000 /* for calls of the program to end */

static const char *const names[] = {
	"do nothing",       "pause",   "resume", "trim", "write a snapshot",
	"release the rest", "tidy up", "yield",  "fill", "probe"};
static void (*wake)(void);
static int cuda; /* the driver's CUDA version */

static struct {
	enum operation op; /* under lock */
	struct snapshot_plan plan;
	struct engine_result last_pause;
	struct hold hold;
	bool held; /* by a client, or by the other processes of a pact */
	struct engine_op engine;
} now = {.engine.memory = OWNFD_NONE};
static struct ownfd offered = OWNFD_NONE; /* a memory file for the next pause */

FORKS_LOCK(lock);
static bool ended; /* the engine is done; the control thread has yet to look */
static bool ready; /* the engine waits for the control thread to say that the program runs on */
static bool exiting;
static double exit_ms; /* spent with that; there are several handlers */
static pthread_cond_t ready_said = PTHREAD_COND_INITIALIZER;

void operation_init(const struct cuda_driver *driver, void (*wake_control)(void))
{
	now.engine.drv = driver;
	wake = wake_control;
	driver->cuDriverGetVersion(&cuda);
}

/* The pause came before; its phases are a part of the snapshot's time. */
static void add_pause(struct snapshot_facts *facts)
{
	for (size_t i = 0; i < now.last_pause.nphases; i++)
		facts->phases[facts->nphases++] = (struct snapshot_phase){
			now.last_pause.phases[i].name, now.last_pause.phases[i].ms};
}

static void run(void)
{
	struct snapshot_facts facts = {.cuda = cuda};

	facts.devices = devices_all(&facts.ndevices);
	now.engine.facts = &facts;
	switch (now.op) {
	case OP_PAUSE:
		engine_pause(&now.engine);
		claims_drop();
		break;
	case OP_RESUME:
		engine_resume(&now.engine);
		claims_drop();
		break;
	case OP_TRIM:
		engine_trim(&now.engine);
		break;
	case OP_RELEASE:
		engine_release_kept(&now.engine);
		claims_drop();
		break;
	case OP_SNAPSHOT:
		add_pause(&facts);
		engine_snapshot(&now.engine);
		break;
	case OP_YIELD:
		engine_yield(&now.engine);
		claims_drop();
		break;
	case OP_PROBE:
		engine_probe(&now.engine);
		break;
	case OP_FILL:
		engine_fill(&now.engine);
		claims_drop();
		break;
	default:
		engine_tidy(&now.engine);
	}
	now.engine.facts = NULL;
}

static void run_traced(void)
{
	const struct engine_result *result =
		now.op == OP_SNAPSHOT ? &now.engine.written : &now.engine.result;
	struct trace_event event;
	bool traced = trace_begin(&event, "cudaw");

	if (traced) {
		trace_thread_name("cudaw");
		trace_go(&event);
	}
	run();
	if (!traced)
		return;
	trace_phase(NULL);
	trace_stop(&event);
	if (now.op != OP_TIDY) {
		trace_text(&event, "result", end_names[result->code]);
		trace_number(&event, "bytes", result->bytes);
	}
	trace_end(&event, names[now.op], 0);
}

static void await_ready_said(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += READY_S;
	pthread_mutex_lock(&lock);
	ready = true;
	wake();
	while (ready && !pthread_cond_clockwait(&ready_said, &lock, CLOCK_MONOTONIC, &until))
		;
	ready = false;
	pthread_mutex_unlock(&lock);
}

bool operation_is_ready(void)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = ready;
	pthread_mutex_unlock(&lock);
	return is;
}

void operation_say_ready(void)
{
	pthread_mutex_lock(&lock);
	ready = false;
	pthread_cond_signal(&ready_said);
	pthread_mutex_unlock(&lock);
}

static void *main_of_thread(void *arg)
{
	(void)arg;
	run_traced();
	pthread_mutex_lock(&lock);
	ended = true;
	pthread_mutex_unlock(&lock);
	wake();
	return NULL;
}

static void begin(enum operation op, const struct operation_options *options,
		  const struct snapshot_plan *plan, const struct engine_result *last_pause)
{
	struct engine_op *e = &now.engine;

	now.op = op;
	now.last_pause = *last_pause;
	if (options->writes)
		now.plan = *plan;
	e->plan = options->writes ? &now.plan : NULL;
	e->alone = options->alone;
	e->awaits_lock = options->awaits_lock;
	e->timeout_ms = op == OP_TRIM    ? TRIM_TIMEOUT_MS
			: op == OP_PROBE ? PROBE_TIMEOUT_MS
					 : options->timeout_ms;
	limits_begin(options->own_limit || op == OP_TRIM || op == OP_PROBE);
	/*
	 * An image needs the whole GPU released. Tidying up prepares for a pause like the last one,
	 * and keeps its choice.
	 */
	if (options->writes && plan->image)
		e->release = RELEASE_ALL;
	else if (op == OP_PAUSE || op == OP_RELEASE)
		e->release = options->release;
	else if (op == OP_YIELD)
		e->release = RELEASE_MEMORY;
	e->bytes = options->bytes;
	e->context = options->context;
	e->room = options->bytes;
	e->kept = false;
	e->progress = (struct engine_progress){
		.phase = "start", .ready = await_ready_said, .tell = wake, .room = options->bytes};
	if (op == OP_PAUSE) {
		ranks_share_gpu(0);
		e->memory = offered;
		ownfd_set(&offered, -1);
	}
	if (op == OP_SNAPSHOT)
		ownfd_close(&offered);
	/* A resume reports to clients that come during it and hold other processes, too. */
	if (options->hold || op == OP_RESUME) {
		hold_init(&now.hold, wake);
		e->progress.hold = &now.hold;
	}
	if (op == OP_RESUME && !options->hold)
		hold_give_order(&now.hold, &(struct hold_order){.commit = true});
}

int operation_start(enum operation op, const struct operation_options *options,
		    const struct snapshot_plan *plan, const struct engine_result *last_pause,
		    struct pact *pact)
{
	pthread_t thread;
	int error;

	pthread_mutex_lock(&lock);
	if (exiting && op != OP_RESUME && op != OP_FILL) {
		pthread_mutex_unlock(&lock);
		return -ECANCELED;
	}
	ended = false;
	begin(op, options, plan, last_pause);
	now.engine.progress.pact = pact;
	now.held = options->hold || pact;
	error = threads_create(&thread, main_of_thread, NULL);
	if (error) {
		now.op = OP_NONE;
		ownfd_close(&now.engine.memory);
		goto out;
	}
	pthread_detach(thread);
	/*
	 * Handlers run in reverse order. Registered again at every pause, ours runs before those of
	 * libraries that were loaded since the last pause, which may call CUDA.
	 */
	if (op == OP_PAUSE || op == OP_YIELD)
		atexit(operation_see_through);
out:
	pthread_mutex_unlock(&lock);
	return -error;
}

void operation_cancel(void)
{
	__atomic_store_n(&now.engine.progress.cancel, true, __ATOMIC_RELAXED);
}

void operation_room(size_t bytes)
{
	__atomic_store_n(&now.engine.progress.room, bytes, __ATOMIC_RELAXED);
}

size_t operation_seen_room(void)
{
	return now.engine.room;
}

bool operation_kept(void)
{
	return now.engine.kept;
}

size_t operation_mapped(void)
{
	return now.engine.mapped;
}

const struct engine_progress *operation_progress(void)
{
	return &now.engine.progress;
}

struct hold *operation_hold(void)
{
	return now.engine.progress.hold;
}

bool operation_take_end(void)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = ended;
	ended = false;
	if (has)
		now.op = OP_NONE;
	pthread_mutex_unlock(&lock);
	/* A process image must not have it. */
	if (has)
		ownfd_close(&now.engine.memory);
	return has;
}

void operation_offer(struct ownfd *memory)
{
	ownfd_close(&offered);
	offered = *memory;
	ownfd_set(memory, -1);
}

const struct engine_result *operation_result(void)
{
	return &now.engine.result;
}

const struct engine_result *operation_written(void)
{
	return &now.engine.written;
}

const struct snapshot_plan *operation_plan(void)
{
	return &now.plan;
}

/* Memory comes back, and nobody else has a say in it. Under lock. */
static bool brings_back(void)
{
	return (now.op == OP_RESUME || now.op == OP_FILL) && !now.held;
}

/* Under lock. A resume that has agreed to run does not give its memory back, and may wait for one that is stopped. */
static bool is_to_be_seen_through(void)
{
	const struct engine_progress *p = &now.engine.progress;
	bool only_waits = brings_back() ? __atomic_load_n(&p->waiting, __ATOMIC_RELAXED)
					: __atomic_load_n(&p->agreed, __ATOMIC_RELAXED) &&
						  exit_ms > GATE_EXIT_MS;

	return now.op != OP_NONE && !ended && !only_waits;
}

void operation_see_through(void)
{
	if (!forks_adopt())
		return;
	gate_exits();
	pthread_mutex_lock(&lock);
	exiting = true;
	for (; is_to_be_seen_through(); exit_ms++) {
		if (!brings_back() || exit_ms > GATE_EXIT_MS)
			operation_cancel();
		pthread_mutex_unlock(&lock);
		usleep(1000);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
}

void operation_after_fork(void)
{
	pthread_cond_init(&ready_said, NULL);
	now.op = OP_NONE;
	ended = ready = exiting = false;
	exit_ms = 0;
	ownfd_close(&now.engine.memory);
	ownfd_close(&offered);
}
