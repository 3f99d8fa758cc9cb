/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/server.h"
#include "checkpoint/gate/gate.h"
#include "common/clock.h"
#include "common/system/forks.h"
#include "common/reused.h"
#include "common/protocol/rundir.h"
#include "common/system/shortage.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "server: "
#include "common/log.h"

#define SILENT_MS    1000 /* for a client to send its request when others need its slot */
#define SHORT_MS     500  /* that a shortage of descriptors may last before a client hears of it */
#define LISTEN_TRIES 1000
#define LOOK_MS      100  /* while clients cannot be let in */
#define RETRY_MS     1000 /* until a missing socket is tried again */
#define NAME_MS      1000 /* between two looks whether the socket has its name */

/* The reasons to turn a client away. */
static const char *const refusals[ENDS] = {
	[END_BUSY] = "all connections to this job wait for an answer; try again later",
	[END_FAILED] = "the program has no free descriptor for an answer (RLIMIT_NOFILE)",
};

static struct rundir_home home;
static struct ownfd listener = OWNFD_NONE;
/* A duplicate of the listening socket: closing it makes room for a client to be told why. */
static struct ownfd reserved = OWNFD_NONE;
static bool missing;    /* there is no socket for now */
static double retry_ms; /* clock_ms() of the next try */
static double name_ms;  /* clock_ms() of the next look for the name */
static bool ended;      /* the name is removed, and stays so */
static struct client clients[SERVER_SLOTS];
static unsigned int last_id;
static bool starved; /* the last accept() had no descriptor */
static struct patience starving;
static bool incoming; /* a client may wait to be let in */

static int count_clients(void)
{
	int n = 0;

	for (int i = 0; i < SERVER_SLOTS; i++)
		n += clients[i].used;
	return n;
}

static void send_line(const struct client *c, const char *line, size_t len)
{
	if (send(ownfd_get(&c->own), line, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len)
		return;
	pr_debug("send: %s", error_text(errno));
	if (c->adopted)
		clients[c - clients].gone = true;
}

void server_say(const struct client *c, const char *fmt, ...)
{
	char line[PROTOCOL_LINE];
	va_list ap;

	va_start(ap, fmt);
	send_line(c, line, lines_write(line, fmt, ap));
	va_end(ap);
}

bool server_keeps_up(const struct client *c)
{
	int fd = ownfd_get(&c->own), unread, size;
	socklen_t len = sizeof(size);

	return ioctl(fd, SIOCOUTQ, &unread) || getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &len) ||
	       unread < size / 2;
}

void server_answer(const struct client *c, enum end_code code, const char *fmt, ...)
{
	char line[PROTOCOL_LINE];
	va_list ap;

	va_start(ap, fmt);
	send_line(c, line, lines_write_end(line, code, fmt, ap));
	va_end(ap);
	clients[c - clients].ended |= c->waits != WAITS_LEASE;
}

void server_end(struct client *c)
{
	c->ended = true;
}

static void reserve(void)
{
	int fd = ownfd_get(&listener);

	if (fd >= 0 && ownfd_get(&reserved) < 0)
		ownfd_set(&reserved, fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

int server_token(const struct client *c)
{
	/*
	 * All eventfds have one inode; but a program that closes the token closes the connection
	 * too.
	 */
	return ownfd_is_lost(&c->own) ? -1 : ownfd_get(&c->token);
}

static void drop(struct client *c)
{
	int token = server_token(c);

	if (token >= 0)
		close(token);
	ownfd_close(&c->pact);
	ownfd_close(&c->memory);
	ownfd_close(&c->own);
	c->used = false;
	reused_rests(&c->own, c + 1);
}

/* The reserved descriptor too, or the socket would stay, and its name in use. */
static void stop_listening(void)
{
	ownfd_close(&listener);
	ownfd_close(&reserved);
}

/*
 * The child of a fork that came while the socket was made has the socket without knowing it, and
 * would answer for this process after its end. So after such a fork another socket is made.
 */
static int listen_alone(void)
{
	for (int tries = 0;; tries++) {
		unsigned long mark = forks_mark();
		int fd = rundir_listen(RUNDIR_CONTROL, &home, missing);

		ownfd_set(&listener, fd);
		reserve();
		if (fd < 0 || !forks_came_since(mark) || tries == LISTEN_TRIES)
			return fd;
		rundir_unlink(RUNDIR_CONTROL, &home);
		stop_listening();
	}
}

void server_unlink(void)
{
	__atomic_store_n(&ended, true, __ATOMIC_RELEASE);
	rundir_unlink(RUNDIR_CONTROL, &home);
}

static void listen_at_home(void)
{
	int fd = listen_alone();

	if (fd < 0) {
		missing |= is_shortage(fd);
		retry_ms = clock_ms() + RETRY_MS;
		return;
	}
	missing = false;
	fcntl(fd, F_SETFL, O_NONBLOCK);
}

void server_init(void)
{
	const char *why;

	ended = false;
	if (rundir_find_home(&home, &why))
		pr_err("%s cannot be used: %s", home.path, why);
	else
		listen_at_home();
}

void server_take_restored(void)
{
	ownfd_take_restored(&listener);
	ownfd_take_restored(&reserved);
	rundir_see_home(&home);
}

bool server_is_lost(void)
{
	return ownfd_is_lost(&listener);
}

/* Somebody may remove our socket from the directory, or the directory. */
static bool lost_name(void)
{
	if (clock_ms() < name_ms || ownfd_get(&listener) < 0)
		return false;
	name_ms = clock_ms() + NAME_MS;
	return !__atomic_load_n(&ended, __ATOMIC_ACQUIRE) &&
	       rundir_is_unnamed(RUNDIR_CONTROL, &home);
}

bool server_reopen(void)
{
	bool lost = server_is_lost();

	for (struct client *c = clients; c < clients + SERVER_SLOTS; c++)
		if (c->used && ownfd_is_lost(&c->own))
			c->gone = lost = true;
	if (server_is_lost() || lost_name()) {
		stop_listening();
		listen_at_home();
		missing = ownfd_get(&listener) < 0;
	} else if (missing && clock_ms() >= retry_ms) {
		listen_at_home();
	}
	return lost;
}

/* The client that makes room for another: the one that has sent no request for the longest time. */
static struct client *find_silent(void)
{
	struct client *found = NULL;

	for (struct client *c = clients; c < clients + SERVER_SLOTS; c++)
		if (c->used && !c->waits && patience_ms(&c->silent) > SILENT_MS &&
		    (!found || c->id < found->id))
			found = c;
	return found;
}

static bool all_wait(void)
{
	for (int i = 0; i < SERVER_SLOTS; i++)
		if (clients[i].used && !clients[i].waits)
			return false;
	return true;
}

/* True if a new client can be let in, if only to be turned away. */
static bool has_room(void)
{
	int n = count_clients();

	return n < SERVER_CLIENTS || (n < SERVER_SLOTS && all_wait()) || find_silent();
}

int server_poll_fds(struct pollfd *fds)
{
	int n = 1;

	/* A negative descriptor is skipped by poll(). */
	fds[0] = (struct pollfd){.fd = !starved && has_room() ? ownfd_get(&listener) : -1,
				 .events = POLLIN};
	for (int i = 0; i < SERVER_SLOTS; i++)
		if (clients[i].used)
			fds[n++] = (struct pollfd){.fd = clients[i].own.fd, .events = POLLIN};
	return n;
}

double server_patience_ms(void)
{
	if (starved || !has_room())
		return LOOK_MS;
	return missing ? RETRY_MS : NAME_MS;
}

static bool same_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       (peer.uid == geteuid() || peer.uid == 0);
}

/* A slot must be free. */
static struct client *add(int fd)
{
	struct client *c = clients;

	while (c->used)
		c++;
	reused_begins(&c->own, c + 1);
	*c = (struct client){.used = true,
			     .own = OWNFD_NONE,
			     .id = ++last_id,
			     .token = OWNFD_NONE,
			     .pact = OWNFD_NONE,
			     .memory = OWNFD_NONE};
	ownfd_set(&c->own, fd);
	return c;
}

struct client *server_adopt(int fd)
{
	struct client *c;

	if (count_clients() >= SERVER_CLIENTS) {
		close(fd);
		return NULL;
	}
	c = add(fd);
	c->adopted = true;
	c->waits = WAITS_LEASE;
	return c;
}

static void take_in(int fd, enum end_code refused)
{
	struct client *c = add(fd);

	c->refused = refused;
	if (same_user(fd))
		return;
	server_answer(c, END_DENIED, "this job belongs to another user");
	drop(c);
}

/* Drop a silent client to make room. False if there is none. */
static bool drop_silent(void)
{
	struct client *silent = find_silent();

	if (!silent)
		return false;
	server_answer(silent, END_BUSY, "no request came, and others need the connection");
	drop(silent);
	return true;
}

static int accept_or_starve(void)
{
	int fd = accept4(ownfd_get(&listener), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 || !is_shortage(-errno)) {
		starved = false;
	} else if (!starved) {
		starved = true;
		starving = (struct patience){0};
	}
	return fd;
}

/* Let the next client in. False if there is none, or if it has to wait. */
static bool accept_client(void)
{
	enum end_code refused = END_NONE;
	int fd = accept_or_starve();

	/* accept() finds that no descriptor is free before it knows whether a client is there. */
	if (starved && patience_ms(&starving) >= SHORT_MS && ownfd_get(&reserved) >= 0) {
		ownfd_close(&reserved);
		fd = accept_or_starve();
		refused = END_FAILED;
	}
	if (starved && drop_silent())
		return true;
	if (fd < 0) {
		reserve();
		return false;
	}
	if (count_clients() >= SERVER_CLIENTS && !drop_silent())
		refused = END_BUSY;
	take_in(fd, refused);
	return true;
}

/* It has sent its request, and has nothing more to say. */
static bool is_silent(const struct client *c)
{
	return c->waits != WAITS_NOT && c->waits != WAITS_LEASE && !c->holds;
}

static void read_client(struct client *c)
{
	int token, came = lines_read(&c->lines, ownfd_get(&c->own), &token);

	if (token >= 0) {
		ownfd_close(&c->token);
		ownfd_set(&c->token, token);
	}
	c->token_lost |= token == -EMFILE;
	c->gone |= came < 0;
	if (is_silent(c))
		c->lines = (struct lines){0}; /* no further line is expected */
}

void server_receive(const struct pollfd *fds, int count)
{
	incoming = starved || !count || fds[0].revents;
	for (int i = 0; i < SERVER_SLOTS; i++) {
		bool found = !count;

		if (!clients[i].used)
			continue;
		for (int j = 1; j < count && !found; j++)
			found = fds[j].fd == clients[i].own.fd && fds[j].revents;
		if (found)
			read_client(&clients[i]);
	}
}

struct client *server_next(const struct client *previous)
{
	struct client *next = NULL;

	for (struct client *c = clients; c < clients + SERVER_SLOTS; c++)
		if (c->used && !c->ended && (!previous || c->id > previous->id) &&
		    (!next || c->id < next->id))
			next = c;
	return next;
}

char *server_line(struct client *c)
{
	char *line;
	int error;

	if (c->ended || is_silent(c))
		return NULL;
	error = lines_next(&c->lines, &line);
	if (error) {
		/* It is not ended: what it holds must be let go (clients_handle()). */
		server_say(c, "end %s %s", end_names[END_INVALID], lines_fault(error));
		c->lines = (struct lines){0};
		c->gone = true;
	}
	if (!line || !c->refused)
		return line;
	server_answer(c, c->refused, "%s", refusals[c->refused]);
	return NULL;
}

void server_sweep(void)
{
	for (int i = 0; i < SERVER_SLOTS; i++)
		if (clients[i].used && clients[i].ended)
			drop(&clients[i]);
	reserve();
	if (listener.fd < 0 || !incoming)
		return;
	while (has_room() && accept_client())
		;
}

void server_close(void)
{
	for (int i = 0; i < SERVER_SLOTS; i++)
		if (clients[i].used)
			drop(&clients[i]);
	stop_listening();
	missing = false;
}
