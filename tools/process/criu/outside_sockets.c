/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside_parts.h"

#include "common/protocol/daemon.h"
#include "common/protocol/rundir.h"
#include "tools/process/criu/unix_sockets.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define WAITING 64 /* connections that a Unix socket may have waiting */

/* Whether any process has the read end of a pipe, which @pipe is the write end of. */
static bool is_read(const struct descriptor *pipe)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pipe->pid, pipe->fd);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void outside_look_at_pipes(const struct descriptors *mine, const struct descriptors *others,
			   struct reasons *reasons)
{
	char name[REASONS_LABEL], other[REASONS_LABEL];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i], *end;

		if (o->kind != DESCRIPTOR_PIPE || descriptors_far_end(mine, o))
			continue;
		end = descriptors_far_end(others, o);
		if (!end && !(o->writes && is_read(o)))
			continue;
		reasons_give(reasons,
			     "descriptor %d of %s is a pipe %s %s, which is not part of the job",
			     o->fd, reasons_label(o->pid, name), o->writes ? "to" : "from",
			     end ? reasons_label(end->pid, other)
				 : "a process that is not visible here");
	}
}

/* A descriptor that was sent and not received yet is lost, or the image cannot be restored. */
static bool is_sending(const struct descriptor *o)
{
	char path[64], line[128];
	bool sending = false;
	int count;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", o->pid, o->fd);
	file = fopen(path, "re");
	while (file && !sending && fgets(line, sizeof(line), file))
		sending = sscanf(line, "scm_fds: %d", &count) == 1 && count > 0;
	if (file)
		fclose(file);
	return sending;
}

/* Whether it is a netlink socket with messages that nobody has read, by proc(5): CRIU refuses it. */
static bool is_unread_netlink(const struct descriptor *o)
{
	static const char name[] = "NETLINK";
	char path[64], line[256], protocol[sizeof(name)];
	unsigned long unread = 0, inode = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", o->pid, o->fd);
	if (getxattr(path, "system.sockprotoname", protocol, sizeof(protocol)) != sizeof(name) ||
	    memcmp(protocol, name, sizeof(name)) != 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/net/netlink", o->pid);
	file = fopen(path, "re");
	while (file && inode != o->inode && fgets(line, sizeof(line), file))
		sscanf(line, "%*s %*s %*s %*s %lu %*s %*s %*s %*s %lu", &unread, &inode);
	if (file)
		fclose(file);
	return inode == o->inode && unread;
}

/* The process that uses CUDA leaves cudawd before the image is made. */
static bool is_daemon(const char *path, const char *process)
{
	const char *name = strrchr(path, '/');

	return (name && !strcmp(name + 1, DAEMON_NAME)) || strstr(process, "(cudawd)");
}

/* Whether @name is of a socket that cudaw has made in the process @pid: its requests may wait. */
static bool is_ours(const char *name, pid_t pid)
{
	static const char *const suffixes[] = {RUNDIR_SUFFIX, RUNDIR_SHARING_SUFFIX};
	const char *last = strrchr(name, '/');
	char own[64];

	for (size_t i = 0; last && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(own, sizeof(own), "/%d%s", pid, suffixes[i]);
		if (!strcmp(last, own))
			return true;
	}
	return false;
}

/*
 * Whether a connection waits to be accepted by @listening that CRIU loses, as it does if the other end is outside, or
 * refuses: with data, or closed [CRIU 4.2, seen].
 */
static bool is_waited_for(int netlink, const struct descriptors *mine,
			  const struct descriptor *listening, bool job)
{
	uint32_t ends[WAITING];
	size_t n = unix_sockets_waiting(netlink, listening->inode, ends, WAITING);
	char name[REASONS_LABEL];

	if (n && job) {
		unix_sockets_name(netlink, listening->inode, name, sizeof(name));
		if (is_ours(name, listening->pid))
			return false;
	}
	for (size_t i = 0; i < n; i++)
		if (i == WAITING || !descriptors_socket(mine, ends[i]) ||
		    unix_sockets_unread(netlink, ends[i]))
			return true;
	return false;
}

/* What is so with @o that CRIU cannot take, and may be over a moment later. NULL: nothing. */
static const char *what_passes(int netlink, const struct descriptors *mine,
			       const struct descriptor *o, const struct reasons *reasons)
{
	if (is_sending(o))
		return "is a Unix socket to which a descriptor was sent that it has not received, "
		       "which CRIU may lose";
	if (is_unread_netlink(o))
		return "is a netlink socket with messages that it has not read";
	if (netlink >= 0 && is_waited_for(netlink, mine, o, reasons_is_job(reasons, o->pid)))
		return "has a connection by a Unix socket that it has not accepted yet";
	return NULL;
}

void outside_look_at_sockets(const struct descriptors *mine, const struct descriptors *others,
			     struct reasons *reasons)
{
	int netlink = unix_sockets_open();
	char name[REASONS_LABEL], other[REASONS_LABEL], path[REASONS_LABEL];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i], *end;
		const char *process, *why;
		ino_t peer;

		if (o->kind != DESCRIPTOR_SOCKET)
			continue;
		why = what_passes(netlink, mine, o, reasons);
		if (why) {
			reasons->passes = true;
			reasons_give(reasons, "descriptor %d of %s %s (try again)", o->fd,
				     reasons_label(o->pid, name), why);
			continue;
		}
		peer = netlink >= 0 ? unix_sockets_peer(netlink, o->inode) : 0;
		if (!peer || descriptors_socket(mine, peer))
			continue;
		end = descriptors_socket(others, peer);
		process =
			end ? reasons_label(end->pid, other) : "a process that is not visible here";
		unix_sockets_name(netlink, peer, path, sizeof(path));
		if (reasons_is_job(reasons, o->pid) && is_daemon(path, process))
			continue;
		reasons_give(
			reasons,
			"descriptor %d of %s is a Unix socket to %s%s%s, which is not part of the job: "
			"end that process, or let the program close the socket",
			o->fd, reasons_label(o->pid, name), process, *path ? " at " : "", path);
	}
	if (netlink >= 0)
		close(netlink);
}
