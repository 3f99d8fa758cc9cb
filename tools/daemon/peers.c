/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/peers.h"
#include "common/clock.h"
#include "common/reused.h"
#include "common/shortage.h"
#include "tools/daemon/rules.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOG_PREFIX "peers: "
#include "common/log.h"

#define SHORT_MS 1000 /* until a shortage of descriptors is looked at again */

static struct peer peers[PEERS_MAX];
static int listener;
static bool everybody;
static struct peer_actions act;
static double full_until_ms; /* no descriptor is free for another peer */

void peers_init(int fd, bool take_everybody, const struct peer_actions *actions)
{
	listener = fd;
	everybody = take_everybody;
	act = *actions;
}

struct peer *peers_next(const struct peer *previous)
{
	for (int i = previous ? previous - peers + 1 : 0; i < PEERS_MAX; i++)
		if (peers[i].used)
			return &peers[i];
	return NULL;
}

static struct peer *find_free(void)
{
	for (int i = 0; i < PEERS_MAX; i++)
		if (!peers[i].used)
			return &peers[i];
	return NULL;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void drop(struct peer *peer)
{
	if (peer->member)
		act.gone(peer);
	close_fd(&peer->fd);
	close_fd(&peer->pidfd);
	free(peer->unsent);
	peer->used = false;
	reused_rests(&peer->fd, peer + 1);
}

void peer_end(struct peer *peer)
{
	peer->ending = true;
	peer->since_ms = clock_ms();
}

/* Keep what the socket does not take. A peer that does not read is dropped. */
static void keep_unsent(struct peer *peer, const char *text, size_t len)
{
	char *grown = NULL;

	if (peer->unsent_len + len <= PEER_UNREAD)
		grown = realloc(peer->unsent, peer->unsent_len + len);
	if (!grown) {
		pr_warn("process %d does not read its lines: its connection is closed", peer->pid);
		peer->gone = true;
		return;
	}
	memcpy(grown + peer->unsent_len, text, len);
	peer->unsent = grown;
	peer->unsent_len += len;
}

/* Returns how much was sent. */
static size_t send_some(struct peer *peer, const char *text, size_t len)
{
	ssize_t sent = send(peer->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent < 0 && errno != EAGAIN && errno != EINTR)
		peer->gone = true;
	return sent < 0 ? 0 : sent;
}

void peer_say(struct peer *peer, const char *fmt, ...)
{
	char line[PROTOCOL_LINE];
	size_t len, sent = 0;
	va_list ap;

	if (peer->gone || peer->ending || peer->fd < 0)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	len = strlen(line);
	line[len++] = '\n';
	if (!peer->unsent_len)
		sent = send_some(peer, line, len);
	if (sent < len && !peer->gone)
		keep_unsent(peer, line + sent, len - sent);
}

static void send_unsent(struct peer *peer)
{
	size_t sent = send_some(peer, peer->unsent, peer->unsent_len);

	peer->unsent_len -= sent;
	memmove(peer->unsent, peer->unsent + sent, peer->unsent_len);
}

/* Connections of the user, or only those of jobs, without @peer; 0 for those who have no bound. */
static int count_others(const struct peer *peer, bool jobs)
{
	int count = 0;

	for (const struct peer *p = peers_next(NULL); p && everybody && peer->uid;
	     p = peers_next(p))
		count += p != peer && p->uid == peer->uid && (!jobs || p->member);
	return count;
}

static int count_free(void)
{
	int count = PEERS_MAX;

	for (const struct peer *p = peers_next(NULL); p; p = peers_next(p))
		count--;
	return count;
}

bool peer_may_be_job(const struct peer *peer)
{
	return count_others(peer, true) < (int)rules_value(CONF_JOBS_PER_USER);
}

static void turn_away(struct peer *peer, const char *code, const char *why)
{
	peer_say(peer, "end %s %s", code, why);
	peer_end(peer);
}

static void take_in(int fd, double now)
{
	struct peer *peer = find_free();
	struct ucred ucred;
	socklen_t len = sizeof(ucred);
	bool ours;

	if (!peer || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &len)) {
		close(fd);
		return;
	}
	reused_begins(&peer->fd, peer + 1);
	*peer = (struct peer){.used = true,
			      .fd = fd,
			      .pidfd = -1,
			      .uid = ucred.uid,
			      .pid = ucred.pid,
			      .since_ms = now};
	ours = peer->uid == geteuid() || peer->uid == 0;
	if (!ours && !everybody) {
		turn_away(peer, END_DENIED, "this daemon belongs to another user");
		return;
	}
	if (!ours && count_free() < PEERS_KEPT) {
		turn_away(peer, END_BUSY, "the daemon has as many connections as it can");
		return;
	}
	if (count_others(peer, false) >= (int)rules_value(CONF_JOBS_PER_USER) + PEER_COMMANDS) {
		turn_away(peer, END_BUSY, "the user has as many connections as one may have");
		return;
	}
	/* A child of the process may keep the connection open beyond its end. */
	if (peer->pid > 0)
		peer->pidfd = syscall(SYS_pidfd_open, peer->pid, 0);
}

static void let_in(double now)
{
	int fd;

	while (find_free()) {
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			take_in(fd, now);
			continue;
		}
		if (is_shortage(-errno))
			full_until_ms = now + SHORT_MS;
		return;
	}
}

static void take_lines(struct peer *peer)
{
	char line[PROTOCOL_LINE], *newline;

	while (!peer->ending && !peer->gone && (newline = memchr(peer->line, '\n', peer->len))) {
		size_t size = newline + 1 - peer->line;

		memcpy(line, peer->line, size);
		line[size - 1] = '\0';
		peer->len -= size;
		memmove(peer->line, newline + 1, peer->len);
		if (strlen(line) != size - 1)
			turn_away(peer, END_INVALID, "a line contains a NUL byte");
		else
			act.line(peer, line);
	}
	if (peer->len == sizeof(peer->line))
		turn_away(peer, END_INVALID, "a line is longer than 4096 bytes");
}

static void read_peer(struct peer *peer)
{
	ssize_t got = recv(peer->fd, peer->line + peer->len, sizeof(peer->line) - peer->len,
			   MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0) {
		peer->len += got;
		take_lines(peer);
	} else if (peer->kind == PEER_LAUNCHED && peer->pidfd >= 0) {
		close_fd(&peer->fd);
	} else {
		peer->gone = true;
	}
}

int peers_poll(struct pollfd fds[PEERS_POLL])
{
	int n = 1;

	fds[0] = (struct pollfd){.fd = find_free() && clock_ms() >= full_until_ms ? listener : -1,
				 .events = POLLIN};
	for (struct peer *peer = peers_next(NULL); peer; peer = peers_next(peer)) {
		short out = peer->unsent_len ? POLLOUT : 0;

		fds[n++] = (struct pollfd){.fd = peer->fd,
					   .events = (short)(peer->ending ? out : out | POLLIN)};
		fds[n++] = (struct pollfd){.fd = peer->pidfd, .events = POLLIN};
	}
	return n;
}

/* It is dropped at once. */
static bool is_done(const struct peer *peer)
{
	return peer->gone || (peer->ending && !peer->unsent_len);
}

static bool is_silent(const struct peer *peer, double now)
{
	return (peer->kind == PEER_NEW || peer->ending) && now - peer->since_ms > PEER_SILENT_MS;
}

/* The lines that a process sent before its end come first. */
static void handle(struct peer *peer, short events, bool ended)
{
	if (events & POLLOUT)
		send_unsent(peer);
	if (peer->fd >= 0 && !peer->ending && (events & ~POLLOUT || ended))
		read_peer(peer);
	peer->gone |= ended || (peer->ending && events & (POLLHUP | POLLERR));
}

void peers_handle(const struct pollfd *fds, int count, double now)
{
	int i = 1;

	for (struct peer *peer = peers_next(NULL); peer && i < count;
	     peer = peers_next(peer), i += 2)
		handle(peer, fds[i].revents, fds[i + 1].revents & POLLIN);
	for (struct peer *peer = peers_next(NULL); peer; peer = peers_next(peer))
		if (is_done(peer) || is_silent(peer, now))
			drop(peer);
	if (fds[0].revents)
		let_in(now);
}

double peers_patience(double now)
{
	double next = full_until_ms > now ? full_until_ms - now : -1;

	for (struct peer *peer = peers_next(NULL); peer; peer = peers_next(peer)) {
		double left = peer->since_ms + PEER_SILENT_MS + 1 - now;

		if (is_done(peer))
			return 0;
		if ((peer->kind == PEER_NEW || peer->ending) && (next < 0 || left < next))
			next = left > 0 ? left : 0;
	}
	return next;
}
