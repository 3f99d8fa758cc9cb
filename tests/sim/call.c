/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration, and what every entry point does first: lock, count, inject faults, check. */
#include "tests/sim/faults.h"
#include "tests/sim/sim.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread struct sim_thread sim_thread;

static struct sim_site *sites;
static bool configured;

static size_t env_size(const char *name, size_t fallback)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : fallback;
}

static bool env_flag(const char *name)
{
	return env_size(name, 0) != 0;
}

static char *env_copy(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? strdup(text) : NULL;
}

/*
 * A forked child has this process's memory but none of its worker threads. As with the real
 * driver, nothing works there after a cuInit in the parent; the lock is new, since another thread
 * may have held it.
 */
static void after_fork(void)
{
	pthread_mutex_init(&sim.lock, NULL);
	sim.forked = sim.initialised;
}

/* Those that CUDA_VISIBLE_DEVICES names, by their numbers, up to the first that is not there. */
static void see_devices(const char *visible)
{
	struct sim_config *c = &sim.config;
	char *end;

	for (c->devices = 0; !visible && c->devices < c->gpus; c->devices++)
		sim.gpu[c->devices] = c->devices;
	while (visible && *visible && c->devices < c->gpus) {
		long gpu = strtol(visible, &end, 10);

		if (end == visible || gpu < 0 || gpu >= c->gpus)
			return;
		sim.gpu[c->devices++] = (int)gpu;
		visible = end + (*end == ',');
	}
}

static void configure(void)
{
	struct sim_config *c = &sim.config;
	pthread_condattr_t attr;
	const char *gbps = getenv("CUDAW_SIM_COPY_GBPS");

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&sim.cond, &attr);
	pthread_condattr_destroy(&attr);
	pthread_atfork(NULL, NULL, after_fork);
	c->gpus = (int)env_size("CUDAW_SIM_DEVICES", 1);
	if (c->gpus > SIM_MAX_DEVICES)
		c->gpus = SIM_MAX_DEVICES;
	see_devices(getenv("CUDA_VISIBLE_DEVICES"));
	c->memory = env_size("CUDAW_SIM_MEMORY", 4UL << 30);
	c->told_memory = getenv("CUDAW_SIM_MEMORY");
	c->context = env_size("CUDAW_SIM_CONTEXT", 64UL << 20);
	c->copy_bytes_per_ns = gbps ? strtod(gbps, NULL) : 0;
	c->no_vmm = env_flag("CUDAW_SIM_NO_VMM");
	c->no_peers = env_flag("CUDAW_SIM_NO_PEERS");
	c->page_tables = env_flag("CUDAW_SIM_PAGE_TABLES");
	c->fresh = env_flag("CUDAW_SIM_FRESH");
	c->strict = env_flag("CUDAW_SIM_STRICT");
	c->shared = env_copy("CUDAW_SIM_SHARED");
	c->remote = env_copy("CUDAW_SIM_REMOTE");
	c->hold[TO_DEVICE] = env_copy("CUDAW_SIM_HOLD_IN");
	c->hold[TO_HOST] = env_copy("CUDAW_SIM_HOLD_OUT");
	c->hold[IN_A_CALL] = env_copy("CUDAW_SIM_HOLD_CALL");
	c->held = env_copy("CUDAW_SIM_HELD_CALL");
	c->faults = env_copy("CUDAW_SIM_FAULT");
	c->count = env_copy("CUDAW_SIM_COUNT");
	configured = true;
}

uint64_t sim_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

unsigned long sim_thread_id(void)
{
	static unsigned long last;

	if (!sim_thread.id)
		sim_thread.id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return sim_thread.id;
}

void sim_changed(void)
{
	pthread_cond_broadcast(&sim.cond);
}

void sim_wait(uint64_t deadline)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline / 1000000000u),
		.tv_nsec = (long)(deadline % 1000000000u),
	};

	if (deadline)
		pthread_cond_timedwait(&sim.cond, &sim.lock, &ts);
	else
		pthread_cond_wait(&sim.cond, &sim.lock);
}

/* @when: the number of a call; or the path of a file, with which one call fails, of all processes, and removes it. */
static bool is_time(const char *when, const struct sim_site *site)
{
	char path[PATH_MAX];

	if (*when != '/')
		return strtoul(when, NULL, 10) == site->calls;
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(when, ":"), when);
	return !unlink(path);
}

/* The result that CUDAW_SIM_FAULT ("NAME:WHEN:RESULT,...") gives to this call of @site. */
static CUresult injected_fault(const struct sim_site *site)
{
	size_t len = strlen(site->name);
	const char *p = sim.config.faults;

	for (; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		const char *result;

		if (strncmp(p, site->name, len) || p[len] != ':')
			continue;
		result = strchr(p + len + 1, ':');
		if (result && is_time(p + len + 1, site))
			return atoi(result + 1) ? (CUresult)atoi(result + 1) : SIM_LOST;
	}
	return CUDA_SUCCESS;
}

static void wait_for_unlock(struct sim_site *site)
{
	if (sim.state == CU_PROCESS_STATE_RUNNING)
		return;
	site->held++;
	site->waiting++;
	sim.held++;
	while (sim.state != CU_PROCESS_STATE_RUNNING)
		sim_wait(0);
	sim.held--;
	site->waiting--;
}

/* As if the caller came later: neither the lock nor a place inside is held. */
static void wait_before(const struct sim_site *site)
{
	if (!sim.config.held || strcmp(sim.config.held, site->name) != 0)
		return;
	pthread_mutex_unlock(&sim.lock);
	wait_while_held(IN_A_CALL);
	pthread_mutex_lock(&sim.lock);
}

static CUresult check_context(enum sim_need need)
{
	struct sim_ctx *ctx = sim_thread.depth ? sim_thread.stack[sim_thread.depth - 1] : NULL;

	if (need < NEED_HEALTHY)
		return CUDA_SUCCESS;
	if (!ctx)
		return need >= NEED_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
	if (!ctx->active)
		return need >= NEED_CONTEXT ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
	return need == NEED_ANY ? CUDA_SUCCESS : ctx->error;
}

CUresult sim_enter(struct sim_site *site, struct sim_scope *scope, enum sim_need need)
{
	CUresult result;

	pthread_mutex_lock(&sim.lock);
	if (!configured)
		configure();
	if (!site->known) {
		site->known = true;
		site->next = sites;
		sites = site;
	}
	wait_before(site);
	site->calls++;
	sim_thread.call = site->name;
	/* Host functions and callbacks must not call the driver. */
	if (sim_thread.worker && need != NEED_NOTHING)
		return CUDA_ERROR_NOT_PERMITTED;
	if (sim.forked && need != NEED_NOTHING)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (need != NEED_CHECKPOINT && need != NEED_NOTHING) {
		scope->inside = true;
		sim.inside++;
		wait_for_unlock(site);
	}
	result = injected_fault(site);
	if (result == CUDA_SUCCESS && need != NEED_NOTHING)
		result = faults_strike(site->name);
	if (result != CUDA_SUCCESS)
		return result;
	if (need >= NEED_CHECKPOINT && !sim.initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	return check_context(need);
}

void sim_leave(struct sim_scope *scope)
{
	if (scope->inside) {
		sim.inside--;
		/* cuCheckpointProcessLock waits for the last thread to leave. */
		if (!sim.inside && sim.lockers)
			sim_changed();
	}
	pthread_mutex_unlock(&sim.lock);
}

size_t sim_held_names(char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (struct sim_site *s = sites; s; s = s->next)
		if (s->waiting && len < size)
			len += (size_t)snprintf(buf + len, size - len, " %s", s->name);
	return len;
}

/* No lock: a thread that never leaves the driver must not keep the process from ending. */
__attribute__((destructor)) static void write_counts(void)
{
	unsigned long held = 0;
	FILE *f;

	if (!sim.config.count || sim.forked)
		return;
	f = fopen(sim.config.count, "we");
	if (!f)
		return;
	for (struct sim_site *s = sites; s; s = s->next) {
		fprintf(f, "%s %lu\n", s->name, s->calls);
		held += s->held;
		if (s->held)
			fprintf(f, "blocked:%s %lu\n", s->name, s->held);
	}
	fprintf(f, "blocked %lu\n", held);
	fclose(f);
}
