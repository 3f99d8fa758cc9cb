/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/hooks/hooks.h"
#include "common/clock.h"
#include "tools/daemon/hooks/events.h"
#include "tools/daemon/hooks/hooks_child.h"
#include "tools/daemon/now.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "cudawd: "
#include "common/log.h"

#define AGAIN_MS 1000 /* between two children, or two messages */

static struct conf_hooks hooks;
static int channel = -1;
static double again_ms;   /* now_ms(): no child is started before */
static uint64_t told;     /* the number of the last event */
static unsigned int lost; /* events that the child did not take, of which nothing was said yet */
static double say_ms;     /* nothing is said of them before */

bool hooks_check(const struct conf_hooks *h, char *why)
{
	if (!h->any)
		return true;
	if (!h->user && geteuid() == 0)
		snprintf(why, CONF_WHY, "[hooks]: expected user = NAME, as whom programs run");
	else if (h->user && geteuid() != 0 && h->uid != geteuid())
		snprintf(
			why, CONF_WHY,
			"[hooks]: user: expected the daemon's own (%u), as it is not root, found %u",
			geteuid(), h->uid);
	else
		return true;
	return false;
}

static bool is_same(const struct conf_hooks *a, const struct conf_hooks *b)
{
	return a->any == b->any && a->user == b->user && a->uid == b->uid &&
	       a->limit_ms == b->limit_ms && !memcmp(a->programs, b->programs, sizeof(a->programs));
}

void hooks_set(const struct conf_hooks *h)
{
	if (is_same(&hooks, h))
		return;
	hooks = *h;
	again_ms = 0;
	if (channel >= 0)
		close(channel);
	channel = -1;
}

static void start(void)
{
	int fds[2];
	pid_t pid;

	again_ms = now_ms() + AGAIN_MS;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)) {
		pr_err("hooks: %s", strerror(errno));
		return;
	}
	pid = fork();
	if (pid == 0)
		hooks_child_main(fds[1], &hooks);
	close(fds[1]);
	channel = pid < 0 ? -1 : fds[0];
	if (pid >= 0)
		return;
	pr_err("hooks: %s", strerror(errno));
	close(fds[0]);
}

static bool has_ended(void)
{
	char byte;
	ssize_t len = recv(channel, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	return !len || (len < 0 && errno != EAGAIN && errno != EINTR);
}

static bool is_wanted(const struct event *event)
{
	int kind = conf_event(event->kind);

	return kind >= 0 && *hooks.programs[kind];
}

static void tell(const struct event *event)
{
	struct hook_event e = {.unix_ms = event->unix_ms, .pid = event->pid, .uid = event->uid};

	snprintf(e.kind, sizeof(e.kind), "%s", event->kind);
	snprintf(e.id, sizeof(e.id), "%s", rundir_is_id(event->id) ? event->id : "");
	snprintf(e.name, sizeof(e.name), "%s", event->name);
	snprintf(e.text, sizeof(e.text), "%s", event->text);
	if (channel >= 0 && send(channel, &e, sizeof(e), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return;
	lost++;
}

static void say_lost(void)
{
	if (!lost || now_ms() < say_ms)
		return;
	pr_err("hooks: events are lost (%u), as their process does not take them", lost);
	lost = 0;
	say_ms = now_ms() + AGAIN_MS;
}

void hooks_look(void)
{
	const struct event *event;

	if (channel >= 0 && has_ended()) {
		pr_err("hooks: their process has ended; another one is started");
		close(channel);
		channel = -1;
	}
	if (hooks.any && channel < 0 && now_ms() >= again_ms)
		start();
	while ((event = events_next(told))) {
		told = event->number;
		if (hooks.any && is_wanted(event))
			tell(event);
	}
	say_lost();
}

int hooks_fd(void)
{
	return channel;
}

static double until_ms(double then, double now)
{
	return then > now ? then - now : 0;
}

double hooks_patience(double now)
{
	double child = hooks.any && channel < 0 ? until_ms(again_ms, now) : -1;

	return clock_shorter(child, lost ? until_ms(say_ms, now) : -1);
}
