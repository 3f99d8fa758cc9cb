/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/server.h"
#include "checkpoint/control.h"
#include "checkpoint/devices.h"
#include "checkpoint/nvml.h"
#include "checkpoint/rundir.h"
#include "checkpoint/signals_reach.h"
#include "checkpoint/snapshot_codec.h"
#include "checkpoint/unmanaged.h"
#include "vmem/addressing.h"
#include "vmem/forks.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "server: "
#include "vmem/log.h"

#define MAX_CLIENTS     (SERVER_FDS - 1)
#define ACCEPT_RETRY_US 100000
#define LISTEN_TRIES    1000

enum waiting { WAITS_NOT, WAITS_PAUSED, WAITS_RUNNING, WAITS_TRIMMED, WAITS_WRITTEN, WAITS_DONE };

struct client {
	int fd;
	size_t len;
	enum waiting waiting;
	bool joined; /* an operation is under way that it waits for */
	bool holds;  /* it gives orders until it says commit */
	char line[PROTOCOL_LINE];
};

static int listen_fd = -1;
static struct client clients[MAX_CLIENTS];
static int nclients;
static const char *const state_names[] = {
#define STATE_NAME(name, text) text,
	STATE_MAP(STATE_NAME)
#undef STATE_NAME
};

/* Send a line. A client that does not read loses it: it must not hold up the job. */
__attribute__((format(printf, 2, 3))) static void say(const struct client *c, const char *fmt, ...)
{
	char line[PROTOCOL_LINE];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	for (int i = 0; i < len; i++)
		if (line[i] == '\n')
			line[i] = ' ';
	line[len++] = '\n';
	if (send(c->fd, line, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		pr_debug("send: %s", strerror(errno));
}

static void drop(struct client *c)
{
	close(c->fd);
	*c = clients[--nclients];
}

static bool same_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       (peer.uid == geteuid() || peer.uid == 0);
}

static void accept_client(void)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client c = {.fd = fd};

	if (fd < 0) {
		/* It stays in the queue, so poll() would return at once, again and again. */
		if (errno == EMFILE || errno == ENFILE)
			usleep(ACCEPT_RETRY_US);
		return;
	}
	if (!same_user(fd)) {
		say(&c, "end " END_DENIED " this job belongs to another user");
		close(fd);
		return;
	}
	clients[nclients++] = c;
}

static void say_command(const struct client *c)
{
	char command[201];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, command, sizeof(command) - 1);

	if (fd >= 0)
		close(fd);
	if (len <= 0)
		return;
	if (!command[len - 1])
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (!command[i])
			command[i] = ' ';
	say(c, "command %.*s", (int)len, command);
}

/* What NVML says that this process holds on all GPUs; 0 where it does not know the process. */
static size_t held_bytes(void)
{
	const struct snapshot_device *devices;
	size_t held = 0, bytes, count;

	devices = devices_all(&count);
	for (size_t i = 0; i < count; i++)
		if (!nvml_process_memory(devices[i].uuid, &bytes))
			held += bytes;
	return held;
}

/*
 * What the process holds beyond what vmem mapped: by NVML where it knows us, else as counted. NVML
 * is asked only while no operation is under way, since it blocks during the driver's checkpoint.
 */
static size_t unmanaged_bytes(void)
{
	static size_t last;
	struct vmem_stats stats;
	size_t held;

	if (engine_is_released())
		return 0;
	if (control_state(NULL) != STATE_RUNNING)
		return last;
	held = held_bytes();
	vmem_get_stats(&stats);
	last = held > stats.mapped ? held - stats.mapped : unmanaged_total();
	return last;
}

static void say_last(const struct client *c, const char *what, const struct engine_result *last)
{
	if (!last->code)
		return;
	say(c, "%s_ms %.3f", what, last->ms);
	say(c, "%s_bytes %zu", what, last->bytes);
	for (size_t i = 0; i < last->nphases; i++)
		say(c, "%s_phase %s %.3f", what, last->phases[i].name, last->phases[i].ms);
}

static void say_status(const struct client *c)
{
	const struct snapshot_device *devices;
	struct vmem_stats stats;
	char id[RUNDIR_ID_SIZE], unreachable[SIGNALS_REACH_TEXT];
	const char *addressing, *why;
	size_t count;

	rundir_job_id(id);
	say(c, "protocol %d", PROTOCOL_VERSION);
	say(c, "id %s", id);
	if (secure_getenv("CUDAW_NAME"))
		say(c, "name %s", secure_getenv("CUDAW_NAME"));
	say(c, "pid %d", getpid());
	say(c, "uid %u", geteuid());
	say_command(c);
	say(c, "state %s", state_names[control_state(NULL)]);
	devices = devices_all(&count);
	for (size_t i = 0; i < count; i++) {
		vmem_get_device_stats(i, &stats);
		if (stats.managed)
			say(c, "gpu %zu %s %s", i, devices[i].uuid, devices[i].name);
	}
	addressing = addressing_name(&why);
	say(c, "addressing %s%s%s", addressing, *why ? " " : "", why);
	vmem_get_stats(&stats);
	say(c, "managed %zu", stats.managed);
	say(c, "unmanaged %zu", unmanaged_bytes());
	say(c, "paused %zu", engine_paused_bytes());
	say(c, "spilled %zu", engine_spilled_bytes());
	say(c, "pool %zu", engine_pool_bytes());
	if (engine_held_in())
		say(c, "snapshot %s", engine_held_in());
	say_last(c, "pause", control_last(true));
	say_last(c, "resume", control_last(false));
	if (*control_reason())
		say(c, "reason %s", control_reason());
	if (signals_unreachable(unreachable, sizeof(unreachable)))
		say(c, "signals %s", unreachable);
	say(c, "end " END_OK);
}

/* The number after a line's word: @fallback where there is none, -1 where it is not a number. */
static int parse_number(const char *text, int fallback)
{
	char *end;
	long value;

	if (!*text)
		return fallback;
	value = strtol(text, &end, 10);
	return *end || value < 0 || value > INT_MAX ? -1 : (int)value;
}

/* The last word of a pause's arguments, if it is "all" or "memory", is cut off. */
static enum release_choice take_release(char *argument)
{
	static const struct {
		const char *word;
		enum release_choice choice;
	} choices[] = {{"all", RELEASE_ALL}, {"memory", RELEASE_MEMORY}};
	char *space = strrchr(argument, ' ');
	char *last = space ? space + 1 : argument;

	for (size_t i = 0; i < 2; i++) {
		if (strcmp(last, choices[i].word))
			continue;
		*(space ? space : argument) = '\0';
		return choices[i].choice;
	}
	return RELEASE_AS_SET;
}

static bool invalid(const struct client *c, const char *expected)
{
	say(c, "end " END_INVALID " expected %s, found %s", expected, c->line);
	return false;
}

static bool take_word(const char **text, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(*text, word, len))
		return false;
	*text += len;
	return true;
}

/*
 * "[pause [MS]] [incremental] [hold] [image] [none|lz4|zstd] /DIR". False where it is none of that.
 */
static bool parse_order(const char *text, struct snapshot_order *order, int *timeout_ms)
{
	long ms = CONTROL_PAUSE_TIMEOUT_MS;
	char codec[8];
	int len = 0;

	order->pause = take_word(&text, "pause ");
	if (order->pause && sscanf(text, "%10ld %n", &ms, &len) == 1)
		text += len;
	*timeout_ms = ms > INT_MAX ? -1 : (int)ms;
	order->incremental = take_word(&text, "incremental ");
	order->hold = take_word(&text, "hold ");
	order->image = take_word(&text, "image ");
	order->codec = SNAPSHOT_RAW;
	len = 0;
	if (sscanf(text, "%7[a-z0-9] %n", codec, &len) == 1) {
		if (!snapshot_codec_parse(codec, &order->codec))
			return false;
		text += len;
	}
	return *timeout_ms >= 0 && *text == '/' &&
	       snprintf(order->path, sizeof(order->path), "%s", text) < (int)sizeof(order->path);
}

/* "[OLD=NEW]... DIR" */
static void take_move(const struct client *c, const char *text)
{
	CUcheckpointGpuPair pairs[CUDA_MAX_DEVICES];
	char uuids[2][NVML_UUID_SIZE];
	struct snapshot_error error;
	size_t count = 0;
	int len, ret = 0;

	for (; !ret && *text && *text != '/'; text += len, count++) {
		len = 0;
		if (count == CUDA_MAX_DEVICES ||
		    sscanf(text, "%40[^= ]=%40[^ ] %n", uuids[0], uuids[1], &len) != 2 || !len ||
		    !nvml_uuid_parse(uuids[0], &pairs[count].oldUuid) ||
		    !nvml_uuid_parse(uuids[1], &pairs[count].newUuid))
			ret = -EINVAL;
	}
	if (ret || !*text)
		say(c, "end " END_INVALID " expected moved [GPU-OLD=GPU-NEW]... /DIR");
	else if (control_moved(text, pairs, count, &error))
		say(c, "end " END_FAILED " %s: %s", text, error.text);
	else
		say(c, "end " END_OK);
}

static bool take_snapshot(struct client *c, const struct snapshot_order *order, int timeout_ms)
{
	struct caller caller;

	caller_find(c->fd, &caller);
	if (control_want_snapshot(order, timeout_ms, &caller)) {
		say(c, "end " END_BUSY " another snapshot is under way, or read back");
		return false;
	}
	c->waiting = WAITS_WRITTEN;
	return true;
}

/* False when the client is done with. */
static bool handle_request(struct client *c)
{
	size_t word = strcspn(c->line, " ");
	char *argument = c->line + word + (c->line[word] == ' ');
	bool hold = word == 4 && !strncmp(c->line, "hold", 4);
	bool pause = hold || (word == 5 && !strncmp(c->line, "pause", 5));
	bool regain = word == 6 && !strncmp(c->line, "regain", 6);
	bool resume = regain || (word == 6 && !strncmp(c->line, "resume", 6));
	enum release_choice release = pause ? take_release(argument) : RELEASE_AS_SET;
	int timeout_ms = parse_number(argument, pause ? CONTROL_PAUSE_TIMEOUT_MS : 0);
	struct snapshot_order order;

	if (!strcmp(c->line, "status")) {
		say_status(c);
		return false;
	}
	if (word == 5 && !strncmp(c->line, "moved", 5)) {
		take_move(c, argument);
		return false;
	}
	if (!strcmp(c->line, "trim")) {
		c->waiting = WAITS_TRIMMED;
		control_want_trim();
		return true;
	}
	if (word == 8 && !strncmp(c->line, "snapshot", 8) &&
	    parse_order(argument, &order, &timeout_ms))
		return take_snapshot(c, &order, timeout_ms);
	if (word == 4 && !strncmp(c->line, "done", 4) && *argument == '/') {
		c->waiting = WAITS_DONE;
		control_done(argument);
		return true;
	}
	if ((!pause && !resume) || timeout_ms < 0)
		return invalid(c, "status, pause [MS] [all|memory], hold [MS] [all|memory], "
				  "resume [MS], regain [MS], trim, snapshot ... /DIR or done /DIR");
	if (hold && control_state(NULL) == STATE_PAUSING) {
		say(c, "end " END_BUSY " another pause is under way");
		return false;
	}
	c->waiting = pause ? WAITS_PAUSED : WAITS_RUNNING;
	c->holds = hold || regain;
	if (c->holds)
		control_want_hold(pause, timeout_ms);
	else
		control_want(pause, timeout_ms);
	if (pause)
		control_choose(release);
	return true;
}

/* What it asked for is not stopped by that, unless it is one to see it through. */
static void leave(const struct client *c)
{
	if (c->waiting == WAITS_WRITTEN)
		control_abort_image();
	else if (c->holds && c->waiting == WAITS_PAUSED)
		control_abort_hold(true);
	else if (c->holds)
		control_end_hold();
}

/* A line of the client that holds the job. False when it is done with. */
static bool handle_order(struct client *c)
{
	struct hold_order order = {.commit = !strcmp(c->line, "commit")};
	int calls = strncmp(c->line, "step ", 5) ? 0 : parse_number(c->line + 5, 0);

	if (calls > 0 && calls <= PROTOCOL_STEP)
		order.step = calls;
	if (order.step || order.commit) {
		control_order(&order);
		return true;
	}
	control_abort_hold(c->waiting == WAITS_PAUSED);
	return !strcmp(c->line, "abort") || invalid(c, "step N, commit or abort");
}

/* What has come of whole lines, but for those after a request that has no orders. */
static bool handle_lines(struct client *c)
{
	char *newline;

	while ((!c->waiting || c->holds) && (newline = strchr(c->line, '\n'))) {
		*newline = '\0';
		if (!(c->holds ? handle_order(c) : handle_request(c)))
			return false;
		c->len -= newline + 1 - c->line;
		memmove(c->line, newline + 1, c->len + 1);
	}
	return true;
}

/* False when the client is done with: it hung up, or its request is answered. */
static bool read_client(struct client *c)
{
	ssize_t n = recv(c->fd, c->line + c->len, sizeof(c->line) - 1 - c->len, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0) {
		leave(c);
		return false;
	}
	if (c->waiting && !c->holds)
		return true; /* nothing more is expected of it */
	c->len += n;
	c->line[c->len] = '\0';
	if (!handle_lines(c))
		return false;
	if (c->len < sizeof(c->line) - 1)
		return true;
	say(c, "end " END_INVALID " the request is longer than %zu bytes", sizeof(c->line) - 2);
	leave(c);
	return false;
}

/*
 * The child of a fork that came while the socket was made has it, and does not know it: it would
 * answer for this process when that has ended. So another socket is made then.
 */
static void listen_alone(void)
{
	unsigned long mark;

	for (int tries = 0; tries < LISTEN_TRIES; tries++) {
		mark = forks_mark();
		__atomic_store_n(&listen_fd, rundir_listen(), __ATOMIC_SEQ_CST);
		if (listen_fd < 0 || !forks_came_since(mark))
			return;
		if (tries + 1 < LISTEN_TRIES) {
			rundir_unlink(getpid());
			server_close();
		}
	}
}

void server_init(void)
{
	listen_alone();
	if (listen_fd < 0)
		return; /* rundir_listen() has said why */
	fcntl(listen_fd, F_SETFL, O_NONBLOCK);
}

int server_poll_fds(struct pollfd *fds)
{
	/* A negative descriptor is skipped by poll(). */
	int fd = nclients < MAX_CLIENTS ? listen_fd : -1;

	fds[0] = (struct pollfd){.fd = fd, .events = POLLIN};
	for (int i = 0; i < nclients; i++)
		fds[1 + i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
	return 1 + nclients;
}

void server_handle(const struct pollfd *fds, int count)
{
	/* Backwards: drop() moves the last client into the gap. */
	for (int i = nclients - 1; i >= 0; i--)
		for (int j = 1; j < count; j++)
			if (fds[j].fd == clients[i].fd && fds[j].revents) {
				if (!read_client(&clients[i]))
					drop(&clients[i]);
				break;
			}
	if (fds[0].revents)
		accept_client();
}

bool server_has_waiters(void)
{
	for (int i = 0; i < nclients; i++)
		if (clients[i].waiting)
			return true;
	return false;
}

void server_send_progress(const struct engine_progress *progress)
{
	const char *phase = __atomic_load_n(&progress->waiting, __ATOMIC_RELAXED)
				    ? "waiting"
				    : __atomic_load_n(&progress->phase, __ATOMIC_ACQUIRE);

	for (int i = 0; i < nclients; i++) {
		if (!clients[i].waiting || clients[i].waiting == WAITS_TRIMMED)
			continue;
		clients[i].joined = true;
		say(&clients[i], "progress %s %zu %zu", phase,
		    __atomic_load_n(&progress->done, __ATOMIC_RELAXED),
		    __atomic_load_n(&progress->total, __ATOMIC_RELAXED));
	}
}

void server_send_ready(void)
{
	for (int i = 0; i < nclients; i++)
		if (clients[i].waiting == WAITS_RUNNING || clients[i].waiting == WAITS_DONE)
			say(&clients[i], "ready");
}

void server_send_report(const struct hold_report *report)
{
	for (int i = 0; i < nclients; i++)
		if (clients[i].holds)
			say(&clients[i], "held %s %u", report->drained ? "drained" : "stuck",
			    report->came);
}

static void answer(const struct client *c, bool paused, const struct engine_result *result)
{
	const struct engine_result *last = control_last(paused);

	if (result && strcmp(result->code, END_OK)) {
		say(c, "end %s %s", result->code, result->message);
		return;
	}
	if (!result && !c->joined) {
		say(c, "note %s", paused ? "already paused" : "already running");
	} else {
		if (*last->note)
			say(c, "note %s", last->note);
		say_last(c, paused ? "pause" : "resume", last);
	}
	say(c, "end " END_OK);
}

void server_finish(bool paused, const struct engine_result *result)
{
	for (int i = nclients - 1; i >= 0; i--) {
		if (clients[i].waiting != (paused ? WAITS_PAUSED : WAITS_RUNNING))
			continue;
		answer(&clients[i], paused, result);
		drop(&clients[i]);
	}
}

/* Answer those who wait for something that does not change the job's state. */
static void finish(enum waiting what, const struct engine_result *result)
{
	for (int i = nclients - 1; i >= 0; i--) {
		if (clients[i].waiting != what)
			continue;
		if (*result->note)
			say(&clients[i], "note %s", result->note);
		if (what == WAITS_WRITTEN && !strcmp(result->code, END_OK))
			say_last(&clients[i], "snapshot", result);
		say(&clients[i], "end %s%s%s", result->code, *result->message ? " " : "",
		    result->message);
		drop(&clients[i]);
	}
}

void server_finish_trim(const struct engine_result *result)
{
	finish(WAITS_TRIMMED, result);
}

void server_finish_snapshot(const struct engine_result *result)
{
	finish(WAITS_WRITTEN, result);
}

void server_finish_done(const struct engine_result *result)
{
	enum job_state state = control_state(NULL);

	for (int i = nclients - 1; i >= 0; i--) {
		if (clients[i].waiting != WAITS_DONE)
			continue;
		if (!result)
			say(&clients[i], "state %s", state_names[state]);
		if (result || state == STATE_RUNNING)
			answer(&clients[i], false, result);
		else
			say(&clients[i], "end " END_OK);
		drop(&clients[i]);
	}
}

void server_close(void)
{
	if (listen_fd >= 0)
		close(listen_fd);
	listen_fd = -1;
	while (nclients > 0)
		close(clients[--nclients].fd);
}
