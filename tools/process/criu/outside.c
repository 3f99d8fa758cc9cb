/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside.h"

#include "common/protocol/daemon.h"
#include "common/system/proc.h"
#include "common/text.h"
#include "tools/process/criu/descriptors.h"
#include "tools/process/criu/unix_sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL_SIZE 128
#define WHY_SIZE   512
#define CRIU_S     10 /* from the look at a timer to CRIU's, at most */

/* The reasons on their way to the caller. */
struct reasons {
	bool (*take)(void *arg, const char *why);
	void *arg;
	bool over; /* the caller wants no more */
};

static void give(struct reasons *reasons, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void give(struct reasons *reasons, const char *fmt, ...)
{
	char why[WHY_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	reasons->over = !reasons->take(reasons->arg, why);
}

/* "1234 (python)" */
static const char *label(pid_t pid, char *buf)
{
	char path[64], name[64] = "?";

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	host_read_line(path, name, sizeof(name));
	snprintf(buf, LABEL_SIZE, "%d (", pid);
	format_copy(buf + strlen(buf), 64, name);
	strcat(buf, ")");
	return buf;
}

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

static void look_at_pipes(const struct descriptors *mine, const struct descriptors *others,
			  struct reasons *reasons)
{
	char name[LABEL_SIZE], other[LABEL_SIZE];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i], *end;

		if (o->kind != DESCRIPTOR_PIPE ||
		    descriptors_find(mine, DESCRIPTOR_PIPE, o->inode, !o->reads, !o->writes))
			continue;
		end = descriptors_find(others, DESCRIPTOR_PIPE, o->inode, !o->reads, !o->writes);
		if (!end && !(o->writes && is_read(o)))
			continue;
		give(reasons, "descriptor %d of %s is a pipe %s %s, which is not part of the job",
		     o->fd, label(o->pid, name), o->writes ? "to" : "from",
		     end ? label(end->pid, other) : "a process that is not visible here");
	}
}

/*
 * The address of @text, in hexadecimal as in /proc/net/tcp: 32-bit words of the machine, and a
 * port.
 */
static void address_text(const char *text, char *buf, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";
	size_t digits = strcspn(text, ":");
	uint32_t words[4] = {0};

	for (size_t i = 0; i < digits / 8 && i < 4; i++)
		sscanf(text + 8 * i, "%8x", &words[i]);
	inet_ntop(digits > 8 ? AF_INET6 : AF_INET, words, host, sizeof(host));
	snprintf(buf, size, digits > 8 ? "[%s]:%lu" : "%s:%lu", host,
		 text[digits] ? strtoul(text + digits + 1, NULL, 16) : 0);
}

/*
 * TCP connections in @table of the network namespace of @pid, also to a process of the job: CRIU does
 * not take them. proc_net_tcp(5) has the format.
 */
static void look_at_tcp(const struct descriptors *mine, pid_t pid, const char *table,
			struct reasons *reasons)
{
	char path[64], line[512], remote[64], text[INET6_ADDRSTRLEN + 16], name[LABEL_SIZE];
	const struct descriptor *found;
	unsigned int state;
	unsigned long inode;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, table);
	file = fopen(path, "re");
	while (file && !reasons->over && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %*d: %*s %63s %x %*s %*s %*s %*d %*d %lu", remote, &state,
			   &inode) != 3 ||
		    state == 7 || state == 10)
			continue;
		found = inode ? descriptors_find(mine, DESCRIPTOR_SOCKET, inode, false, false)
			      : NULL;
		if (!found)
			continue;
		address_text(remote, text, sizeof(text));
		give(reasons,
		     "descriptor %d of %s is a TCP connection to %s, which a snapshot cannot hold",
		     found->fd, label(found->pid, name), text);
	}
	if (file)
		fclose(file);
}

/* The same for all network namespaces of the processes, each read once. */
static void look_at_networks(const struct tree *tree, const struct descriptors *mine,
			     struct reasons *reasons)
{
	ino_t seen[TREE_MAX];
	size_t n = 0, at;

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		struct stat st = {0};
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d/ns/net", tree->pids[i]);
		if (!stat(path, &st)) {
			for (at = 0; at < n && seen[at] != st.st_ino; at++)
				;
			if (at < n)
				continue;
			seen[n++] = st.st_ino;
		}
		look_at_tcp(mine, tree->pids[i], "tcp", reasons);
		if (!reasons->over)
			look_at_tcp(mine, tree->pids[i], "tcp6", reasons);
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

/* The job leaves cudawd before the image is made. */
static bool is_daemon(const char *path, const char *process)
{
	const char *name = strrchr(path, '/');

	return (name && !strcmp(name + 1, DAEMON_NAME)) || strstr(process, "(cudawd)");
}

static void look_at_sockets(const struct descriptors *mine, const struct descriptors *others,
			    struct reasons *reasons)
{
	int netlink = unix_sockets_open();
	char name[LABEL_SIZE], other[LABEL_SIZE], path[LABEL_SIZE];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i], *end;
		const char *process;
		ino_t peer;

		if (o->kind != DESCRIPTOR_SOCKET)
			continue;
		if (is_sending(o)) {
			give(reasons,
			     "a descriptor was sent to descriptor %d of %s, a Unix socket, and "
			     "not received yet; CRIU may lose it (try again)",
			     o->fd, label(o->pid, name));
			continue;
		}
		peer = netlink >= 0 ? unix_sockets_peer(netlink, o->inode) : 0;
		if (!peer || descriptors_find(mine, DESCRIPTOR_SOCKET, peer, false, false))
			continue;
		end = descriptors_find(others, DESCRIPTOR_SOCKET, peer, false, false);
		process = end ? label(end->pid, other) : "a process that is not visible here";
		unix_sockets_name(netlink, peer, path, sizeof(path));
		if (is_daemon(path, process))
			continue;
		give(reasons,
		     "descriptor %d of %s is a Unix socket to %s%s%s, which is not part of the job",
		     o->fd, label(o->pid, name), process, *path ? " at " : "", path);
	}
	if (netlink >= 0)
		close(netlink);
}

/*
 * The kernel appends " (deleted)" to the path of a removed directory; a directory that exists may
 * have such a name, too.
 */
static void look_at_directories(const struct tree *tree, struct reasons *reasons)
{
	static const char removed[] = " (deleted)";
	char link[64], path[PATH_MAX], name[LABEL_SIZE];
	struct stat named, st;

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/%d/cwd", tree->pids[i]);
		len = readlink(link, path, sizeof(path) - 1);
		if (len < (ssize_t)strlen(removed))
			continue;
		path[len] = '\0';
		if (strcmp(path + len - strlen(removed), removed) || stat(link, &st) ||
		    (!stat(path, &named) && named.st_dev == st.st_dev && named.st_ino == st.st_ino))
			continue;
		path[len - strlen(removed)] = '\0';
		give(reasons, "the working directory of %s was removed: %s",
		     label(tree->pids[i], name), path);
	}
}

/* The driver's checkpoint takes the GPU files of the first process, which uses CUDA. */
static void look_at_children(const struct tree *tree, const struct descriptors *mine,
			     struct reasons *reasons)
{
	char name[LABEL_SIZE];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];

		if (o->kind != DESCRIPTOR_GPU || o->pid == tree->pids[0])
			continue;
		give(reasons,
		     "its child %s has %s open: a snapshot can hold only one process that uses a GPU",
		     label(o->pid, name), o->target);
	}
}

/* While such a process lives, the id of its session or group is not free for a restore. */
static void look_at_sessions(const struct tree *tree, struct reasons *reasons)
{
	char name[LABEL_SIZE], leader[LABEL_SIZE];
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && !reasons->over && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name), session = pid > 0 ? getsid(pid) : 0,
		      group = pid > 0 ? getpgid(pid) : 0;
		bool in_session = session > 0 && tree_has(tree, session);

		if (tree_has(tree, pid) || !(in_session || (group > 0 && tree_has(tree, group))))
			continue;
		give(reasons,
		     "%s is in the %s of %s, but is no descendant of it: a restore would fail while it lives",
		     label(pid, name), in_session ? "session" : "process group",
		     label(in_session ? session : group, leader));
	}
	if (proc)
		closedir(proc);
}

/*
 * CRIU restores a periodic timer disarmed if nobody has read its expiry when CRIU reads it
 * [CRIU 4.2, seen]. proc_pid_fdinfo(5) has the format.
 */
static bool may_be_lost(const struct descriptor *timer)
{
	unsigned long long ticks = 0, left = 0, left_ns = 0, period = 0, period_ns = 0;
	char path[64], line[128];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", timer->pid, timer->fd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "ticks: %llu", &ticks) != 1 &&
		    sscanf(line, "it_value: (%llu, %llu)", &left, &left_ns) != 2)
			sscanf(line, "it_interval: (%llu, %llu)", &period, &period_ns);
	if (file)
		fclose(file);
	return (period || period_ns) && (ticks || ((left || left_ns) && left < CRIU_S));
}

static void look_at_timers(const struct descriptors *mine, struct reasons *reasons)
{
	char name[LABEL_SIZE];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];

		if (o->kind != DESCRIPTOR_TIMER || !may_be_lost(o))
			continue;
		give(reasons,
		     "descriptor %d of %s is a periodic timer that expires too soon: CRIU "
		     "would restore it disarmed",
		     o->fd, label(o->pid, name));
	}
}

void outside_find(const struct tree *tree, bool (*take)(void *arg, const char *why), void *arg)
{
	struct descriptors mine = {0}, others = {0};
	struct reasons reasons = {.take = take, .arg = arg};

	for (size_t i = 0; i < tree->n; i++)
		descriptors_add_process(&mine, tree->pids[i]);
	descriptors_add_others(&others, tree);
	if (tree->cut) {
		give(&reasons, "it has more than %d processes", TREE_MAX);
	} else if (mine.short_of_memory || others.short_of_memory) {
		give(&reasons, "out of memory for the list of its open files");
	} else {
		look_at_directories(tree, &reasons);
		look_at_timers(&mine, &reasons);
		look_at_children(tree, &mine, &reasons);
		look_at_networks(tree, &mine, &reasons);
		look_at_pipes(&mine, &others, &reasons);
		look_at_sockets(&mine, &others, &reasons);
		look_at_sessions(tree, &reasons);
	}
	free(mine.all);
	free(others.all);
}
