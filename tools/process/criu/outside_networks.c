/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside_parts.h"

/* What looks at a network namespace. */
struct network {
	const struct descriptors *mine, *others;
	struct tcp_sockets *ports, *closable;
	size_t n; /* namespaces with sockets */
	struct reasons *reasons;
};

/* Whether a process of the job listens for connections to @local. */
static bool is_served(const struct network *net, const struct tcp_sockets *sockets,
		      const struct tcp_end *local)
{
	for (size_t i = 0; i < sockets->n; i++)
		if (tcp_serves(&sockets->all[i], local) &&
		    descriptors_socket(net->mine, sockets->all[i].inode))
			return true;
	return false;
}

/* A connection of @mine: its other end is a socket of the job, too, or the reason against it. */
static void look_at_connection(const struct network *net, const struct tcp_sockets *sockets,
			       const struct tcp_socket *s, const struct descriptor *mine)
{
	const struct tcp_socket *peer = tcp_peer(sockets, s);
	const struct descriptor *end = peer ? descriptors_socket(net->others, peer->inode) : NULL,
				*twin = descriptors_socket(net->others, s->inode);
	bool inside = peer && descriptors_socket(net->mine, peer->inode);
	/* The one that is to accept it says so. */
	bool told = peer && tcp_is_waiting(peer) && is_served(net, sockets, &peer->local);
	char name[REASONS_LABEL], other[REASONS_LABEL], remote[TCP_TEXT_SIZE];

	if (net->closable && !inside && !twin && !told && tcp_may_end(s, peer)) {
		tcp_add(net->closable, s);
		return;
	}
	tcp_add(net->ports, s);
	if ((inside && !twin) || told)
		return;
	tcp_text(&s->remote, remote);
	reasons_label(mine->pid, name);
	/* One that is to be closed may be, once the process has read what is left of it. */
	net->reasons->passes =
		s->state == TCP_IS_NEW || (net->closable && !twin && tcp_is_left(s, peer));
	if (s->state == TCP_IS_NEW)
		reasons_give(net->reasons, "descriptor %d of %s is connecting to %s (try again)",
			     mine->fd, name, remote);
	else if (twin)
		reasons_give(
			net->reasons,
			"descriptor %d of %s is a TCP connection that %s has open, too, which is not part of the job",
			mine->fd, name, reasons_label(twin->pid, other));
	else if (end)
		reasons_give(
			net->reasons,
			"descriptor %d of %s is a TCP connection to %s of %s, which is not part of the job: "
			"end it first, or close it (--close-outside)",
			mine->fd, name, remote, reasons_label(end->pid, other));
	else if (tcp_is_left(s, peer))
		reasons_give(
			net->reasons,
			"descriptor %d of %s is a TCP connection from %s that the other end has closed",
			mine->fd, name, remote);
	else
		reasons_give(
			net->reasons,
			"descriptor %d of %s is a TCP connection to %s, which is not part of the job: "
			"end it first, or close it (--close-outside)",
			mine->fd, name, remote);
}

/* Connections that nobody has accepted yet: CRIU would lose them. */
static void look_at_listening(const struct network *net, const struct tcp_sockets *sockets,
			      const struct tcp_socket *s, const struct descriptor *mine)
{
	char name[REASONS_LABEL], remote[TCP_TEXT_SIZE];

	for (size_t i = 0; i < sockets->n && !net->reasons->over; i++) {
		const struct tcp_socket *other = &sockets->all[i];

		if (!tcp_is_waiting(other) || !tcp_serves(s, &other->local))
			continue;
		net->reasons->passes = true;
		reasons_give(
			net->reasons,
			"descriptor %d of %s has a TCP connection from %s that it has not accepted yet (try again)",
			mine->fd, reasons_label(mine->pid, name), tcp_text(&other->remote, remote));
	}
}

static bool look_at_network(void *arg, const struct tcp_sockets *sockets)
{
	struct network *net = arg;

	net->n += sockets->n > 0;
	for (size_t i = 0; i < sockets->n && !net->reasons->over; i++) {
		const struct tcp_socket *s = &sockets->all[i];
		const struct descriptor *mine = descriptors_socket(net->mine, s->inode);

		if (!mine || s->state == TCP_IS_CLOSED)
			continue;
		if (s->state == TCP_IS_LISTENING) {
			tcp_add(net->ports, s);
			look_at_listening(net, sockets, s, mine);
		} else {
			look_at_connection(net, sockets, s, mine);
		}
	}
	return !net->reasons->over;
}

void outside_look_at_networks(const struct tree *tree, const struct descriptors *mine,
			      const struct descriptors *others, struct tcp_sockets *ports,
			      struct tcp_sockets *closable, struct reasons *reasons)
{
	struct network net = {.mine = mine,
			      .others = others,
			      .ports = ports,
			      .closable = closable,
			      .reasons = reasons};

	ports->n = 0;
	if (closable)
		closable->n = 0;
	if ((!tcp_networks(tree, look_at_network, &net) || ports->short_of_memory ||
	     (closable && closable->short_of_memory)) &&
	    !reasons->over)
		reasons_give(reasons,
			     "out of memory or descriptors for the list of TCP connections");
	if (closable && closable->n && net.n > 1 && !reasons->over)
		reasons_give(
			reasons,
			"its processes are in %zu networks: which of its TCP connections go outside "
			"of the job, to be closed, cannot be seen",
			net.n);
}
