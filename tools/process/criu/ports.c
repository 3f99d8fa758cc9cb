/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/ports.h"

#include "common/patience.h"
#include "tools/process/criu/descriptors.h"
#include "tools/process/process.h"
#include "tools/report/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENDED_MS 61000 /* TCP_TIMEWAIT_LEN of the kernel, and a little */
#define LOOK_US  100000
#define ENDED    " by a connection that has ended, for up to a minute: try again then"

#define NO_ADDRESS "the job needs the address of %s, which this machine does not have"

void ports_put(struct json_out *out, const struct tcp_sockets *ports)
{
	char text[TCP_TEXT_SIZE];

	json_open(out, "ports", '[');
	for (size_t i = 0; i < ports->n; i++) {
		const struct tcp_socket *s = &ports->all[i];
		bool listens = s->state == TCP_IS_LISTENING;

		json_open(out, NULL, '{');
		json_text(out, "local", tcp_text(&s->local, text));
		json_text(out, "remote", listens ? NULL : tcp_text(&s->remote, text));
		json_close(out, '}');
	}
	json_close(out, ']');
}

static bool read_end(const json_t *port, const char *key, struct tcp_end *end)
{
	const char *text = json_string_value(json_object_get(port, key));

	return text && tcp_parse(text, end);
}

int ports_read(struct tcp_sockets *ports, const json_t *root, struct snapshot_error *error)
{
	const json_t *list = json_object_get(root, "ports"), *port;
	size_t i;

	if (list && !json_is_array(list))
		return snapshot_fail(error, -EBADMSG, "host.json: expected a list of ports");
	json_array_foreach(list, i, port) {
		struct tcp_socket s = {.state = TCP_IS_OPEN};

		if (json_is_null(json_object_get(port, "remote")))
			s.state = TCP_IS_LISTENING;
		if (!read_end(port, "local", &s.local) ||
		    (s.state == TCP_IS_OPEN && !read_end(port, "remote", &s.remote)))
			return snapshot_fail(error, -EBADMSG,
					     "host.json: ports: number %zu is no address and port",
					     i);
		tcp_add(ports, &s);
	}
	return ports->short_of_memory ? snapshot_fail(error, -ENOMEM, "out of memory") : 0;
}

/* Bind it as CRIU does, also for IPv4 if @both, and let go. 0 or a negative errno. */
static int try(const struct tcp_end *end, bool both)
{
	bool is_4 = IN6_IS_ADDR_V4MAPPED(&end->address);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(end->port)};
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(end->port), .sin6_addr = end->address};
	int on = 1, only_6 = !both, fd, ret;

	/* The list does not say which interface it is of, so only CRIU can tell. */
	if (IN6_IS_ADDR_LINKLOCAL(&end->address))
		return 0;
	fd = socket(is_4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	memcpy(&in.sin_addr, &end->address.s6_addr[12], sizeof(in.sin_addr));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!is_4)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_6, sizeof(only_6));
	ret = is_4 ? bind(fd, (struct sockaddr *)&in, sizeof(in))
		   : bind(fd, (struct sockaddr *)&in6, sizeof(in6));
	ret = ret ? -errno : 0;
	close(fd);
	return ret;
}

/* Who has the port of @end, for the end of a message; "" and *@passes if only connections that have ended do. */
static void find_holder(const struct tcp_sockets *here, const struct tcp_end *end, bool *passes,
			char *text, size_t size)
{
	const struct tree nobody = {.n = 0};
	const struct descriptor *holder = NULL;
	struct descriptors all = {0};
	char name[PROCESS_NAME];
	bool ended = false;

	*text = '\0';
	descriptors_add_others(&all, &nobody);
	for (size_t i = 0; i < here->n && !holder; i++) {
		if (here->all[i].local.port != end->port)
			continue;
		holder = descriptors_socket(&all, here->all[i].inode);
		ended |= here->all[i].state == TCP_IS_ENDED;
	}
	*passes = ended && !holder;
	if (holder)
		snprintf(text, size, ": process %d (%s)", holder->pid,
			 process_name(holder->pid, name));
	free(all.all);
}

static bool copy_sockets(void *arg, const struct tcp_sockets *sockets)
{
	struct tcp_sockets *here = arg;

	for (size_t i = 0; i < sockets->n; i++)
		tcp_add(here, &sockets->all[i]);
	return true;
}

/* All sockets of this network namespace. The caller frees here->all. */
static void find_here(struct tcp_sockets *here)
{
	const struct tree self = {.pids = {getpid()}, .n = 1};

	*here = (struct tcp_sockets){0};
	tcp_networks(&self, copy_sockets, here);
}

/* The job may have one socket for the port of IPv6 and another one for that of IPv4. */
static bool has_of_4(const struct tcp_sockets *ports, uint16_t port)
{
	for (size_t i = 0; i < ports->n; i++)
		if (ports->all[i].state == TCP_IS_LISTENING && ports->all[i].local.port == port &&
		    IN6_IS_ADDR_V4MAPPED(&ports->all[i].local.address))
			return true;
	return false;
}

static int check_listening(const struct tcp_sockets *here, const struct tcp_end *end, bool both,
			   bool *passes, struct snapshot_error *error)
{
	char text[TCP_TEXT_SIZE], holder[96];
	int ret = try(end, both);

	if (!ret)
		return 0;
	tcp_text(end, text);
	if (ret == -EADDRNOTAVAIL)
		return snapshot_fail(error, ret, NO_ADDRESS, text);
	if (ret != -EADDRINUSE)
		return snapshot_fail(error, ret, "the job needs the port %s: %s", text,
				     strerror(-ret));
	find_holder(here, end, passes, holder, sizeof(holder));
	return snapshot_fail(error, ret, "the job needs the port %s, which is in use%s", text,
			     *passes ? ENDED : holder);
}

static bool is_loopback(const struct tcp_end *end)
{
	return IN6_IS_ADDR_LOOPBACK(&end->address) ||
	       (IN6_IS_ADDR_V4MAPPED(&end->address) && end->address.s6_addr[12] == 127);
}

/* CRIU takes the port of a connection as it is; the pair of addresses must be free. */
static int check_connection(const struct tcp_sockets *here, const struct tcp_socket *s,
			    bool *passes, struct snapshot_error *error)
{
	const struct tcp_socket *same = tcp_same(here, s);
	struct tcp_end any_port = s->local;
	char local[TCP_TEXT_SIZE], remote[TCP_TEXT_SIZE];

	any_port.port = 0;
	tcp_text(&s->local, local);
	if (try(&any_port, false) == -EADDRNOTAVAIL)
		return snapshot_fail(error, -EADDRNOTAVAIL, NO_ADDRESS, local);
	*passes = same && same->state == TCP_IS_ENDED;
	if (!same || (*passes && is_loopback(&s->local)))
		return 0;
	return snapshot_fail(error, -EADDRINUSE,
			     "the job needs a connection from %s to %s, which is in use%s", local,
			     tcp_text(&s->remote, remote), *passes ? ENDED : "");
}

/* The first one that is not free. *@passes if it will be. 0 or a negative errno. */
static int check_all(const struct tcp_sockets *ports, bool *passes, struct snapshot_error *error)
{
	struct tcp_sockets here;
	int ret = 0;

	find_here(&here);
	for (size_t i = 0; i < ports->n && !ret; i++) {
		const struct tcp_socket *s = &ports->all[i];

		*passes = false;
		ret = s->state == TCP_IS_LISTENING
			      ? check_listening(&here, &s->local, !has_of_4(ports, s->local.port),
						passes, error)
			      : check_connection(&here, s, passes, error);
	}
	free(here.all);
	return ret;
}

int ports_check(const struct tcp_sockets *ports, bool patient, struct snapshot_error *error)
{
	struct patience patience = {0};
	bool passes;
	int ret;

	progress_begin("waiting for");
	while ((ret = check_all(ports, &passes, error)) && passes && patient &&
	       patience_ms(&patience) < ENDED_MS) {
		progress_time("ports of connections that have ended");
		usleep(LOOK_US);
	}
	progress_end();
	return ret;
}
