/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/connections.h"
#include "common/processes/pidfd.h"
#include "common/reused.h"
#include "common/system/shortage.h"
#include "tools/daemon/now.h"
#include "tools/daemon/rules.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "connections: "
#include "common/log.h"

#define SHORT_MS 1000 /* until a shortage of descriptors is looked at again */

static struct connection connections[CONNECTIONS_MAX];
static int listener;
static bool everybody;
static struct connection_actions act;
static double full_until_ms; /* no descriptor is free for another connection */

void connections_init(int fd, bool take_everybody, const struct connection_actions *actions)
{
	listener = fd;
	everybody = take_everybody;
	act = *actions;
}

void connections_listen(int fd)
{
	listener = fd;
}

struct connection *connections_next(const struct connection *previous)
{
	for (int i = previous ? previous - connections + 1 : 0; i < CONNECTIONS_MAX; i++)
		if (connections[i].used)
			return &connections[i];
	return NULL;
}

static struct connection *find_free(void)
{
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		if (!connections[i].used)
			return &connections[i];
	return NULL;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void drop(struct connection *connection)
{
	if (connection->member)
		act.gone(connection);
	close_fd(&connection->fd);
	close_fd(&connection->pidfd);
	free(connection->unsent);
	connection->used = false;
	reused_rests(&connection->fd, connection + 1);
}

/* Keep what the socket does not take. A connection that does not read is dropped. */
static void keep_unsent(struct connection *connection, const char *text, size_t len)
{
	char *grown = NULL;

	if (connection->unsent_len + len <= CONNECTION_UNREAD)
		grown = realloc(connection->unsent, connection->unsent_len + len);
	if (!grown) {
		pr_warn("process %d does not read its lines: its connection is closed",
			connection->pid);
		connection->gone = true;
		return;
	}
	memcpy(grown + connection->unsent_len, text, len);
	connection->unsent = grown;
	connection->unsent_len += len;
}

/* Returns how much was sent. */
static size_t send_some(struct connection *connection, const char *text, size_t len)
{
	ssize_t sent = send(connection->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent < 0 && errno != EAGAIN && errno != EINTR)
		connection->gone = true;
	return sent < 0 ? 0 : sent;
}

static void send_line(struct connection *connection, const char *line, size_t len)
{
	size_t sent = 0;

	if (connection->gone || connection->ending || connection->fd < 0)
		return;
	if (!connection->unsent_len)
		sent = send_some(connection, line, len);
	if (sent < len && !connection->gone)
		keep_unsent(connection, line + sent, len - sent);
}

void connection_say(struct connection *connection, const char *fmt, ...)
{
	char line[PROTOCOL_LINE];
	va_list ap;

	va_start(ap, fmt);
	send_line(connection, line, lines_write(line, fmt, ap));
	va_end(ap);
}

bool connection_send(struct connection *connection, const char *text, int fd)
{
	return !connection->gone && !connection->ending && connection->fd >= 0 &&
	       !connection->unsent_len && !lines_send(connection->fd, text, fd, MSG_DONTWAIT);
}

static void send_unsent(struct connection *connection)
{
	size_t sent = send_some(connection, connection->unsent, connection->unsent_len);

	connection->unsent_len -= sent;
	memmove(connection->unsent, connection->unsent + sent, connection->unsent_len);
}

/* Connections of the user, or only those of jobs, without @connection; 0 for those who have no bound. */
static int count_others(const struct connection *connection, bool jobs)
{
	int count = 0;

	for (const struct connection *p = connections_next(NULL); p && everybody && connection->uid;
	     p = connections_next(p))
		count += p != connection && p->uid == connection->uid && (!jobs || p->member);
	return count;
}

static int count_free(void)
{
	int count = CONNECTIONS_MAX;

	for (const struct connection *p = connections_next(NULL); p; p = connections_next(p))
		count--;
	return count;
}

bool connections_are_of_everybody(void)
{
	return everybody;
}

bool connection_may_be_job(const struct connection *connection)
{
	return count_others(connection, true) < (int)rules_value(CONF_JOBS_PER_USER);
}

void connection_answer(struct connection *connection, enum end_code code, const char *fmt, ...)
{
	char line[PROTOCOL_LINE];
	va_list ap;

	va_start(ap, fmt);
	send_line(connection, line, lines_write_end(line, code, fmt, ap));
	va_end(ap);
	connection->ending = true;
	connection->since_ms = now_ms();
}

static void take_in(int fd, double now)
{
	struct connection *connection = find_free();
	struct ucred ucred;
	socklen_t len = sizeof(ucred);
	bool ours;

	if (!connection || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &len)) {
		close(fd);
		return;
	}
	reused_begins(&connection->fd, connection + 1);
	*connection = (struct connection){.used = true,
					  .fd = fd,
					  .pidfd = -1,
					  .uid = ucred.uid,
					  .pid = ucred.pid,
					  .since_ms = now};
	ours = connection->uid == geteuid() || connection->uid == 0;
	if (!ours && !everybody) {
		connection_answer(connection, END_DENIED, "this daemon belongs to another user");
		return;
	}
	if (!ours && count_free() < CONNECTIONS_KEPT) {
		connection_answer(connection, END_BUSY, "all connections of the daemon are in use");
		return;
	}
	if (count_others(connection, false) >=
	    (int)rules_value(CONF_JOBS_PER_USER) + CONNECTION_COMMANDS) {
		connection_answer(connection, END_BUSY,
				  "the user has as many connections as the daemon allows");
		return;
	}
	/* A child of the process may keep the connection open beyond its end. */
	connection->pidfd = pidfd_of_peer(fd, connection->pid);
	connection->ended = connection->pidfd == -ESRCH;
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

static void take_lines(struct connection *connection)
{
	char *line;
	int error;

	while (!connection->ending && !connection->gone) {
		error = lines_next(&connection->lines, &line);
		if (error)
			connection_answer(connection, END_INVALID, "%s", lines_fault(error));
		if (!line)
			return;
		act.line(connection, line);
	}
}

static void read_lines(struct connection *connection)
{
	int came = lines_read(&connection->lines, connection->fd, NULL);

	if (came > 0)
		take_lines(connection);
	else if (came < 0 && connection->kind == CONNECTION_LAUNCHED && connection->pidfd >= 0)
		close_fd(&connection->fd);
	else
		connection->gone |= came < 0;
}

int connections_poll(struct pollfd fds[CONNECTIONS_POLL])
{
	int n = 1;

	fds[0] = (struct pollfd){.fd = find_free() && now_ms() >= full_until_ms ? listener : -1,
				 .events = POLLIN};
	for (struct connection *connection = connections_next(NULL); connection;
	     connection = connections_next(connection)) {
		short out = connection->unsent_len ? POLLOUT : 0;

		fds[n++] =
			(struct pollfd){.fd = connection->fd,
					.events = (short)(connection->ending ? out : out | POLLIN)};
		fds[n++] = (struct pollfd){.fd = connection->pidfd, .events = POLLIN};
	}
	return n;
}

/* It is dropped at once. */
static bool is_done(const struct connection *connection)
{
	return connection->gone || (connection->ending && !connection->unsent_len);
}

/* Until a connection that says nothing, or does not read its answer, is dropped. Negative: it is not. */
static double until_silent(const struct connection *connection, double now)
{
	double limit = CONNECTION_SILENT_MS;

	if (connection->kind != CONNECTION_NEW && !connection->ending)
		return -1;
	/* Others wait for its place, perhaps. */
	if (!connection->ending && count_free() <= (everybody ? CONNECTIONS_KEPT : 0))
		limit = CONNECTION_HURRY_MS;
	return connection->since_ms + limit > now ? connection->since_ms + limit - now : 0;
}

/* The lines that a process sent before its end come first. */
static void handle(struct connection *connection, short events, bool ended)
{
	if (events & POLLOUT)
		send_unsent(connection);
	if (connection->fd >= 0 && !connection->ending && (events & ~POLLOUT || ended))
		read_lines(connection);
	connection->gone |= ended || (connection->ending && events & (POLLHUP | POLLERR));
}

void connections_handle(const struct pollfd *fds, int count, double now)
{
	int i = 1;

	for (struct connection *connection = connections_next(NULL); connection && i < count;
	     connection = connections_next(connection), i += 2)
		handle(connection, fds[i].revents,
		       connection->ended || fds[i + 1].revents & POLLIN);
	for (struct connection *connection = connections_next(NULL); connection;
	     connection = connections_next(connection))
		if (is_done(connection) || until_silent(connection, now) == 0)
			drop(connection);
	if (fds[0].revents)
		let_in(now);
}

double connections_patience(double now)
{
	double next = full_until_ms > now ? full_until_ms - now : -1;

	for (struct connection *connection = connections_next(NULL); connection;
	     connection = connections_next(connection)) {
		double left = until_silent(connection, now);

		if (is_done(connection) || connection->ended)
			return 0;
		if (left >= 0 && (next < 0 || left < next))
			next = left;
	}
	return next;
}
