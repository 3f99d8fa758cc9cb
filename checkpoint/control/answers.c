/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/answers.h"
#include "checkpoint/control/signals/signals_reach.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/ledger/driver_memory.h"
#include "checkpoint/ledger/ranks.h"
#include "checkpoint/release/devices.h"
#include "common/clock.h"
#include "common/gpu/gpu.h"
#include "common/gpu/nvml.h"
#include "common/protocol/quota.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "common/processes/proc.h"
#include "vmem/addresses/addressing.h"
#include "vmem/vmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void answers_say_name(const struct client *c)
{
	char id[RUNDIR_ID_SIZE];

	rundir_job_id(id);
	server_say(c, "id %s", id);
	if (setting_text(SETTING_NAME))
		server_say(c, "name %s", setting_text(SETTING_NAME));
	server_say(c, "pid %d", getpid());
}

void answers_say_command(const struct client *c)
{
	char command[201];

	host_command(0, command, sizeof(command));
	if (*command)
		server_say(c, "command %s", command);
}

/* Bytes that this process holds on all GPUs, by NVML; 0 if NVML does not know the process. */
static size_t held_bytes(void)
{
	const struct gpu *devices;
	size_t held = 0, bytes, count;

	devices = devices_all(&count);
	for (size_t i = 0; i < count; i++)
		if (!nvml_process_memory(devices[i].uuid, &bytes))
			held += bytes;
	return held;
}

/*
 * What the process holds beyond what vmem mapped: by NVML if it knows the process, else as counted.
 * NVML is asked only while no operation is under way, since it blocks during the driver's
 * checkpoint.
 */
static size_t driver_memory_bytes(enum job_state state)
{
	static size_t last;
	struct vmem_stats stats;
	size_t held;

	if (engine_is_released())
		return 0;
	/* A pause may find memory that it leaves to the driver. */
	if (state != STATE_RUNNING)
		return last > driver_memory_total() ? last : driver_memory_total();
	held = held_bytes();
	vmem_get_stats(&stats);
	last = held > stats.mapped ? held - stats.mapped : driver_memory_total();
	return last;
}

static void say_last(const struct client *c, const char *what, const struct engine_result *last)
{
	if (!last->code)
		return;
	server_say(c, "%s_us %" PRIu64, what, clock_us_of(last->ms));
	server_say(c, "%s_bytes %zu", what, last->bytes);
	for (size_t i = 0; i < last->nphases; i++)
		server_say(c, "%s_phase %s %" PRIu64, what, last->phases[i].name,
			   clock_us_of(last->phases[i].ms));
}

static void say_gpu(const struct client *c, int dev, const struct gpu *gpu)
{
	size_t quota = quota_of(dev);

	server_say(c, "gpu %d %s %s", dev, gpu->uuid, gpu->name);
	if (quota != SIZE_MAX)
		server_say(c, "limit %zu %zu", quota, quota - quota_left(dev));
}

void answers_status(const struct client *c, const struct answers_facts *facts)
{
	const struct gpu *devices;
	struct vmem_stats stats;
	char unreachable[SIGNALS_REACH_TEXT];
	const char *addressing, *why;
	size_t count;

	server_say(c, "protocol %d", PROTOCOL_VERSION);
	answers_say_name(c);
	server_say(c, "uid %u", geteuid());
	answers_say_command(c);
	server_say(c, "state %s", state_names[facts->state]);
	devices = devices_all(&count);
	for (size_t i = 0; i < count; i++) {
		vmem_get_device_stats(i, &stats);
		if (stats.carried || contexts_on((CUdevice)i))
			say_gpu(c, (int)i, &devices[i]);
	}
	addressing = addressing_name(&why);
	server_say(c, "addressing %s%s%s", addressing, *why ? " " : "", why);
	vmem_get_stats(&stats);
	server_say(c, "carried %zu", stats.carried);
	server_say(c, "left_to_driver %zu", driver_memory_bytes(facts->state));
	server_say(c, "paused %zu", engine_paused_bytes());
	server_say(c, "spilled %zu", engine_spilled_bytes());
	if (facts->state == STATE_PAUSED && engine_is_off_gpu())
		server_say(c, "released 1");
	server_say(c, "pool %zu", engine_pool_bytes());
	if (engine_snapshot_dir())
		server_say(c, "snapshot %s", engine_snapshot_dir());
	say_last(c, "pause", facts->pause);
	say_last(c, "resume", facts->resume);
	if (facts->waits)
		server_say(c, "waits %s %zu %" PRIu64, facts->waits, facts->waits_bytes,
			   clock_us_of(facts->waits_ms));
	if (*facts->reason)
		server_say(c, "reason %s", facts->reason);
	if (facts->failed_for_ms)
		server_say(c, "failed_us %" PRIu64, clock_us_of(facts->failed_for_ms));
	if (signals_unreachable(unreachable, sizeof(unreachable)))
		server_say(c, "signals %s", unreachable);
	if (*facts->no_turns)
		server_say(c, "no_turns %s", facts->no_turns);
	server_answer(c, END_OK, NULL);
}

/* @c waits for what is under way. */
static void report(struct client *c, const char *phase, size_t done, size_t total)
{
	c->joined = true;
	if (server_keeps_up(c))
		server_say(c, "progress %s %zu %zu", phase, done, total);
}

void answers_progress(const struct engine_progress *progress)
{
	const char *phase = __atomic_load_n(&progress->waiting, __ATOMIC_RELAXED)
				    ? "waiting"
				    : __atomic_load_n(&progress->phase, __ATOMIC_ACQUIRE);

	for (struct client *c = server_next(NULL); c; c = server_next(c)) {
		if (c->waits == WAITS_NOT || c->waits == WAITS_TRIMMED)
			continue;
		report(c, phase, __atomic_load_n(&progress->done, __ATOMIC_RELAXED),
		       __atomic_load_n(&progress->total, __ATOMIC_RELAXED));
	}
}

void answers_waiting(void)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c)) {
		if (c->waits != WAITS_RUNNING)
			continue;
		report(c, "waiting", 0, engine_saved_bytes());
	}
}

void answers_wait(const char *text)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_RUNNING && c->joined)
			server_say(c, "waiting %s", text);
}

void answers_turn(void)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_RUNNING && (c->holds || c->follows))
			server_answer(
				c, END_TURN,
				"the job waits for its turn on the GPU, and runs as soon as it "
				"has room");
}

void answers_ready(bool fill)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_RUNNING || c->waits == WAITS_DONE ||
		    (c->waits == WAITS_LEASE && fill))
			server_say(c, "ready");
}

void answers_moved(const char *what, size_t bytes)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_LEASE)
			server_say(c, "%s %zu", what, bytes);
}

void answers_yielded(const struct engine_result *result)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_LEASE)
			say_last(c, "yield", result);
}

void answers_context(const char *what, const char *why)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_LEASE)
			server_say(c, "context %s%s%s", what, *why ? " " : "", why);
}

void answers_short(uint64_t group)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_LEASE)
			server_say(c, "short %" PRIu64, group);
}

void answers_filled(void)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_LEASE)
			server_say(c, "filled");
}

/* The value of "comms" (protocol.h); "" if there are none. */
static void write_comms(char *text, size_t size)
{
	struct ranks_comm list[RANKS_COMMS];
	size_t n = ranks_list(list), len = 0;

	*text = '\0';
	for (size_t i = 0; i < n && len < size; i++) {
		char rank[16] = "";

		if (list[i].size)
			snprintf(rank, sizeof(rank), ":%u", list[i].rank);
		len += snprintf(text + len, size - len, "%s%u:%u:%llu%s%s", i ? " " : "",
				list[i].id, list[i].size, (unsigned long long)list[i].made.count,
				rank, list[i].made.kind == RANKS_SOME ? "s" : "");
	}
}

void answers_report(const struct hold_report *report, enum operation op)
{
	bool lease = control_is_part(op);
	char comms[RANKS_COMMS * 48], number[16] = "";

	write_comms(comms, sizeof(comms));
	if (report->reached)
		snprintf(number, sizeof(number), " %u", report->reached);
	for (struct client *c = server_next(NULL); c; c = server_next(c)) {
		if (!(c->holds || c->follows) || (c->waits == WAITS_LEASE) != lease)
			continue;
		if (*comms && op != OP_FILL)
			server_say(c, "comms %s", comms);
		if (!report->runs && op == OP_FILL)
			server_say(c, "filled");
		if (!report->runs)
			server_say(c, "held %s %u%s", report->drained ? "drained" : "stuck",
				   report->came, number);
	}
}

static const char *already(bool paused)
{
	if (!paused)
		return "already running";
	if (engine_is_released())
		return "already paused, with nothing left on the GPU";
	return engine_keeps_context() ? "already paused; its CUDA context stays on the GPU"
				      : "already paused";
}

/* The answer to a pause or a resume; @last is the last result of its kind. */
static void answer_change(const struct client *c, bool paused, const struct engine_result *result,
			  const struct engine_result *last)
{
	if (result && result->code != END_OK) {
		server_answer(c, result->code, "%s", result->message);
		return;
	}
	if (!result && !c->joined) {
		server_say(c, "note %s", already(paused));
	} else {
		if (*last->note)
			server_say(c, "note %s", last->note);
		say_last(c, paused ? "pause" : "resume", last);
	}
	server_answer(c, END_OK, NULL);
}

static void answer_done(const struct client *c, const struct engine_result *result,
			const struct answers_facts *facts)
{
	if (!result)
		server_say(c, "state %s", state_names[facts->state]);
	if (result || facts->state == STATE_RUNNING)
		answer_change(c, false, result, facts->resume);
	else
		server_answer(c, END_OK, NULL);
}

/* The answer to a request that does not change the job's state. */
static void answer_other(const struct client *c, const struct engine_result *result)
{
	if (*result->note)
		server_say(c, "note %s", result->note);
	if (c->waits == WAITS_WRITTEN && result->code == END_OK)
		say_last(c, "snapshot", result);
	server_answer(c, result->code, "%s", result->message);
}

void answers_finish(enum server_wait whom, const struct engine_result *result,
		    const struct answers_facts *facts)
{
	for (struct client *c = server_next(NULL); c; c = server_next(c)) {
		if (c->waits != whom)
			continue;
		if (whom == WAITS_LEASE)
			server_answer(c, result->code, "%s", result->message);
		else if (whom == WAITS_PAUSED || whom == WAITS_RUNNING)
			answer_change(c, whom == WAITS_PAUSED, result,
				      whom == WAITS_PAUSED ? facts->pause : facts->resume);
		else if (whom == WAITS_DONE)
			answer_done(c, result, facts);
		else
			answer_other(c, result);
	}
}
