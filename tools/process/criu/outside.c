/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside.h"

#include "common/protocol/daemon.h"
#include "common/protocol/rundir.h"
#include "common/processes/maps.h"
#include "common/processes/proc.h"
#include "common/system/memory_fs.h"
#include "tools/process/criu/descriptors.h"
#include "tools/process/criu/unix_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LABEL_SIZE 128
#define WHY_SIZE   512
#define CRIU_S     10      /* from the look at a timer to CRIU's, at most */
#define SYSV_PATH  "/SYSV" /* the beginning of the path of attached memory: shmget(2) */
#define WAITING    64      /* connections that a Unix socket may have waiting */

/* The reasons on their way to the caller. */
struct reasons {
	const pid_t *jobs; /* that use CUDA under cudaw, or NVML alone */
	size_t njobs;
	outside_take take;
	void *arg;
	bool passes; /* the next one may be over a moment later */
	bool over;   /* the caller wants no more */
};

static bool is_job(const struct reasons *reasons, pid_t pid)
{
	return process_is_among(pid, reasons->jobs, reasons->njobs);
}

static void give(struct reasons *reasons, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void give(struct reasons *reasons, const char *fmt, ...)
{
	char why[WHY_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	reasons->over = !reasons->take(reasons->arg, why, reasons->passes);
	reasons->passes = false;
}

/* "1234 (python)" */
static const char *label(pid_t pid, char *buf)
{
	char name[PROCESS_NAME];

	snprintf(buf, LABEL_SIZE, "%d (%s)", pid, process_name(pid, name));
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

		if (o->kind != DESCRIPTOR_PIPE || descriptors_far_end(mine, o))
			continue;
		end = descriptors_far_end(others, o);
		if (!end && !(o->writes && is_read(o)))
			continue;
		give(reasons, "descriptor %d of %s is a pipe %s %s, which is not part of the job",
		     o->fd, label(o->pid, name), o->writes ? "to" : "from",
		     end ? label(end->pid, other) : "a process that is not visible here");
	}
}

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
	char name[LABEL_SIZE], other[LABEL_SIZE], remote[TCP_TEXT_SIZE];

	if (net->closable && !inside && !twin && !told && tcp_may_end(s, peer)) {
		tcp_add(net->closable, s);
		return;
	}
	tcp_add(net->ports, s);
	if ((inside && !twin) || told)
		return;
	tcp_text(&s->remote, remote);
	label(mine->pid, name);
	/* One that is to be closed may be, once the process has read what is left of it. */
	net->reasons->passes =
		s->state == TCP_IS_NEW || (net->closable && !twin && tcp_is_left(s, peer));
	if (s->state == TCP_IS_NEW)
		give(net->reasons, "descriptor %d of %s is connecting to %s (try again)", mine->fd,
		     name, remote);
	else if (twin)
		give(net->reasons,
		     "descriptor %d of %s is a TCP connection that %s has open, too, which is not part of the job",
		     mine->fd, name, label(twin->pid, other));
	else if (end)
		give(net->reasons,
		     "descriptor %d of %s is a TCP connection to %s of %s, which is not part of the job: "
		     "end it first, or close it (--close-outside)",
		     mine->fd, name, remote, label(end->pid, other));
	else if (tcp_is_left(s, peer))
		give(net->reasons,
		     "descriptor %d of %s is a TCP connection from %s that the other end has closed",
		     mine->fd, name, remote);
	else
		give(net->reasons,
		     "descriptor %d of %s is a TCP connection to %s, which is not part of the job: "
		     "end it first, or close it (--close-outside)",
		     mine->fd, name, remote);
}

/* Connections that nobody has accepted yet: CRIU would lose them. */
static void look_at_listening(const struct network *net, const struct tcp_sockets *sockets,
			      const struct tcp_socket *s, const struct descriptor *mine)
{
	char name[LABEL_SIZE], remote[TCP_TEXT_SIZE];

	for (size_t i = 0; i < sockets->n && !net->reasons->over; i++) {
		const struct tcp_socket *other = &sockets->all[i];

		if (!tcp_is_waiting(other) || !tcp_serves(s, &other->local))
			continue;
		net->reasons->passes = true;
		give(net->reasons,
		     "descriptor %d of %s has a TCP connection from %s that it has not accepted yet (try again)",
		     mine->fd, label(mine->pid, name), tcp_text(&other->remote, remote));
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

static void look_at_networks(const struct tree *tree, const struct descriptors *mine,
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
		give(reasons, "out of memory or descriptors for the list of TCP connections");
	if (closable && closable->n && net.n > 1 && !reasons->over)
		give(reasons,
		     "its processes are in %zu networks: which of its TCP connections go outside "
		     "of the job, to be closed, cannot be seen",
		     net.n);
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
	char name[LABEL_SIZE];

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
			reasons->passes = true;
			give(reasons,
			     "a descriptor was sent to descriptor %d of %s, a Unix socket, and "
			     "not received yet; CRIU may lose it (try again)",
			     o->fd, label(o->pid, name));
			continue;
		}
		if (is_unread_netlink(o)) {
			reasons->passes = true;
			give(reasons,
			     "descriptor %d of %s is a netlink socket with messages that it has "
			     "not read (try again)",
			     o->fd, label(o->pid, name));
			continue;
		}
		if (netlink >= 0 && is_waited_for(netlink, mine, o, is_job(reasons, o->pid))) {
			reasons->passes = true;
			give(reasons,
			     "descriptor %d of %s has a connection by a Unix socket that it has "
			     "not accepted yet (try again)",
			     o->fd, label(o->pid, name));
			continue;
		}
		peer = netlink >= 0 ? unix_sockets_peer(netlink, o->inode) : 0;
		if (!peer || descriptors_socket(mine, peer))
			continue;
		end = descriptors_socket(others, peer);
		process = end ? label(end->pid, other) : "a process that is not visible here";
		unix_sockets_name(netlink, peer, path, sizeof(path));
		if (is_job(reasons, o->pid) && is_daemon(path, process))
			continue;
		give(reasons,
		     "descriptor %d of %s is a Unix socket to %s%s%s, which is not part of the job: "
		     "end that process, or let the program close the socket",
		     o->fd, label(o->pid, name), process, *path ? " at " : "", path);
	}
	if (netlink >= 0)
		close(netlink);
}

static bool is_same(const char *path, const struct stat *st)
{
	struct stat found;

	return !stat(path, &found) && found.st_dev == st->st_dev && found.st_ino == st->st_ino;
}

static void look_at_directories(const struct tree *tree, struct reasons *reasons)
{
	char link[64], path[PATH_MAX], name[LABEL_SIZE];
	struct stat st;

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/%d/cwd", tree->pids[i]);
		len = readlink(link, path, sizeof(path) - 1);
		path[len > 0 ? len : 0] = '\0';
		if (!maps_is_former(path) || stat(link, &st) || is_same(path, &st))
			continue;
		path[len - strlen(MAPS_FORMER)] = '\0';
		give(reasons, "the working directory of %s was removed: %s",
		     label(tree->pids[i], name), path);
	}
}

/* The process that a descriptor of pidfd_open(2) is of; it may have ended (-1). 0: not known. */
static pid_t process_of(const struct descriptor *o)
{
	char path[64], line[128];
	pid_t pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", o->pid, o->fd);
	file = fopen(path, "re");
	while (file && !pid && fgets(line, sizeof(line), file))
		sscanf(line, "Pid: %d", &pid);
	if (file)
		fclose(file);
	return pid;
}

/* What CRIU would refuse only once the job is paused. */
static void look_at_kinds(const struct tree *tree, const struct descriptors *mine,
			  struct reasons *reasons)
{
	char name[LABEL_SIZE], other[LABEL_SIZE];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];
		pid_t pid = o->kind == DESCRIPTOR_PROCESS ? process_of(o) : 0;

		if (o->kind == DESCRIPTOR_REFUSED)
			give(reasons, "descriptor %d of %s is %s, which CRIU does not take", o->fd,
			     label(o->pid, name), o->target);
		else if (pid > 0 && !tree_has(tree, pid))
			give(reasons,
			     "descriptor %d of %s is a pidfd of %s, which is not part of the job",
			     o->fd, label(o->pid, name), label(pid, other));
	}
}

/* Whether memory_files.h gives the file the name back while CRIU works. */
static bool is_carried(const struct tree *tree, const char *link, const char *name)
{
	bool is_mapped = false;
	char path[PATH_MAX];

	for (size_t i = 0; i < tree->n && !is_mapped; i++)
		is_mapped = maps_find(tree->pids[i], name, path) > 0;
	return is_mapped && memory_fs(link);
}

/* CRIU would make a name for such a file, which would stay (--link-remap). */
static void look_at_names(const struct tree *tree, const struct descriptors *mine,
			  struct reasons *reasons)
{
	char link[64], path[PATH_MAX], name[LABEL_SIZE];

	for (size_t i = 0; i < mine->n && !reasons->over; i++) {
		const struct descriptor *o = &mine->all[i];
		ssize_t len;

		if (o->kind != DESCRIPTOR_RENAMED)
			continue;
		snprintf(link, sizeof(link), "/proc/%d/fd/%d", o->pid, o->fd);
		len = readlink(link, path, sizeof(path) - 1);
		path[len > 0 ? len : 0] = '\0';
		if (len > 0 && !is_carried(tree, link, path))
			give(reasons,
			     "descriptor %d of %s is a file that has lost its name, and has another one: "
			     "close it, or remove its other name: %s",
			     o->fd, label(o->pid, name), path);
	}
}

/* Whether a file is mapped that has lost its name and has another. memory_files.h has those that are shared memory. */
static bool has_lost_name(pid_t pid, const struct maps *maps)
{
	char path[PATH_MAX + 32];
	struct stat st;

	if (!maps->path || !maps_is_former(maps->path))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", pid, maps->begin, maps->end);
	if (stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_nlink ||
	    (maps->rights[1] == 'w' && maps->rights[3] == 's' && memory_fs(path)))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/root%s", pid, maps->path);
	return !is_same(path, &st);
}

/* As a library that was replaced, of which a package manager has another link. */
static void look_at_mapped_names(const struct tree *tree, struct reasons *reasons)
{
	char name[LABEL_SIZE];

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		struct maps maps;
		ino_t last = 0;

		maps_open(&maps, tree->pids[i]);
		while (!reasons->over && maps_next(&maps)) {
			if (maps.inode == last || !has_lost_name(tree->pids[i], &maps))
				continue;
			last = maps.inode;
			give(reasons,
			     "%s maps a file that has lost its name, and has another one: remove its other name, "
			     "or start the job anew: %s",
			     label(tree->pids[i], name), maps.path);
		}
		maps_close(&maps);
	}
}

/* The driver's checkpoint takes the GPU files of the jobs. */
static void look_at_gpus(const struct tree *tree, const struct descriptors *mine,
			 struct reasons *reasons)
{
	char name[LABEL_SIZE], path[PATH_MAX];

	for (size_t i = 0; i < tree->n && !reasons->over; i++) {
		pid_t pid = tree->pids[i];
		const struct descriptor *gpu = descriptors_of(mine, DESCRIPTOR_GPU, pid);

		if (maps_find(pid, SYSV_PATH, path) > 0)
			give(reasons,
			     "%s has System V shared memory (shmget), which CRIU does not take",
			     label(pid, name));
		if (is_job(reasons, pid) || reasons->over ||
		    (!gpu && maps_find(pid, DESCRIPTOR_GPU_PATH, path) <= 0))
			continue;
		give(reasons, "its process %s has %s open, and does not use CUDA under cudaw",
		     label(pid, name), gpu ? gpu->target : path);
	}
}

/* The one of the processes @one and @other that is of the tree, or 0. */
static pid_t of_tree(const struct tree *tree, pid_t one, pid_t other)
{
	if (tree_has(tree, one))
		return one;
	return tree_has(tree, other) ? other : 0;
}

static void look_at_memory(const struct tree *tree, const char *line, struct reasons *reasons)
{
	char name[LABEL_SIZE], path[PATH_MAX];
	pid_t maker, last, pid;
	int id;

	if (sscanf(line, "%*d %d %*o %*u %d %d", &id, &maker, &last) != 3)
		return;
	pid = of_tree(tree, maker, last);
	/* look_at_gpus() has found what is attached. */
	if (pid && maps_find(pid, SYSV_PATH, path) <= 0)
		give(reasons,
		     "%s has used the System V shared memory %d (shmget), which CRIU does not take",
		     label(pid, name), id);
}

static void look_at_queue(const struct tree *tree, const char *line, struct reasons *reasons)
{
	pid_t sender, receiver, pid;
	char name[LABEL_SIZE];
	int id;

	if (sscanf(line, "%*d %d %*o %*u %*u %d %d", &id, &sender, &receiver) != 3)
		return;
	pid = of_tree(tree, sender, receiver);
	if (pid)
		give(reasons,
		     "%s has used the System V message queue %d (msgget), which CRIU does not take",
		     label(pid, name), id);
}

static void look_at_semaphores(const struct tree *tree, const char *line, struct reasons *reasons)
{
	char name[LABEL_SIZE];
	int id, count;
	uid_t owner;

	if (sscanf(line, "%*d %d %*o %d %u", &id, &count, &owner) != 3 || owner != tree->owner)
		return;
	for (int i = 0; i < count; i++) {
		pid_t pid = semctl(id, i, GETPID);

		if (!tree_has(tree, pid))
			continue;
		give(reasons,
		     "%s has used the System V semaphores %d (semget), which CRIU does not take",
		     label(pid, name), id);
		break;
	}
}

/* Of a set of semaphores, a queue or memory that is not attached, the kernel knows only who has used it last. */
static void look_at_ipc(const struct tree *tree, struct reasons *reasons)
{
	static const struct {
		const char *path; /* proc_sysvipc(5) */
		void (*look)(const struct tree *tree, const char *line, struct reasons *reasons);
	} kinds[] = {{"/proc/sysvipc/shm", look_at_memory},
		     {"/proc/sysvipc/msg", look_at_queue},
		     {"/proc/sysvipc/sem", look_at_semaphores}};
	char line[512];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		FILE *file = fopen(kinds[i].path, "re");

		while (file && !reasons->over && fgets(line, sizeof(line), file))
			kinds[i].look(tree, line, reasons);
		if (file)
			fclose(file);
	}
}

/*
 * A new process is in the session of its parent, until it begins one: so CRIU makes them. A process may have left the
 * session since that its children are in, or have adopted one; CRIU finds out only for children of the first process,
 * and for what a process above has begun [CRIU 4.2, prepare_pstree_ids()].
 */
static void look_at_origins(const struct tree *tree, struct reasons *reasons)
{
	char name[LABEL_SIZE], other[LABEL_SIZE];

	for (size_t i = 1; i < tree->n && !reasons->over; i++) {
		pid_t pid = tree->pids[i], session = getsid(pid), parent;

		if (session <= 0 || session == pid || !host_process(pid, &parent) ||
		    parent == tree->pids[0] || getsid(parent) == session ||
		    (tree_has(tree, session) && tree_is_below(pid, session)))
			continue;
		give(reasons,
		     "%s is in the session %d, which neither its parent %s is in nor a process above has "
		     "begun: a restore could not put it there",
		     label(pid, name), session, label(parent, other));
	}
}

/* Ids of sessions and process groups. */
struct groups {
	pid_t ids[2 * TREE_MAX];
	size_t n;
};

static void add_group(struct groups *groups, pid_t id)
{
	if (id > 0 && !process_is_among(id, groups->ids, groups->n))
		groups->ids[groups->n++] = id;
}

/*
 * Those that a restore makes: all of the tree, except those that its first process has not begun, as CRIU puts it into
 * the command's (--shell-job).
 */
static void find_groups(const struct tree *tree, struct groups *groups)
{
	const pid_t others[] = {getsid(tree->pids[0]), getpgid(tree->pids[0])};

	groups->n = 0;
	for (size_t i = 0; i < tree->n; i++) {
		const pid_t ids[] = {getsid(tree->pids[i]), getpgid(tree->pids[i])};

		for (size_t k = 0; k < 2; k++)
			if (tree_has(tree, ids[k]) || !process_is_among(ids[k], others, 2))
				add_group(groups, ids[k]);
	}
}

static bool is_made(const struct tree *tree, const struct groups *groups, pid_t id)
{
	return tree_has(tree, id) || process_is_among(id, groups->ids, groups->n);
}

/* While such a process lives, the id of its session or group is not free for a restore. */
static void look_at_sessions(const struct tree *tree, struct reasons *reasons)
{
	struct groups groups;
	char name[LABEL_SIZE];
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	find_groups(tree, &groups);
	while (proc && !reasons->over && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name), session = pid > 0 ? getsid(pid) : 0,
		      group = pid > 0 ? getpgid(pid) : 0;
		bool in_session = session > 0 && is_made(tree, &groups, session);
		pid_t parent;

		/* One that has ended is gone once its parent has waited for it, as init does. */
		if (tree_has(tree, pid) ||
		    !(in_session || (group > 0 && is_made(tree, &groups, group))) ||
		    host_process(pid, &parent) == 'Z')
			continue;
		give(reasons,
		     "%s is in the %s %d, which the job has, but is not below its first process: a restore would "
		     "fail while it lives",
		     label(pid, name), in_session ? "session" : "process group",
		     in_session ? session : group);
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

void outside_find(const struct tree *tree, const pid_t *jobs, size_t njobs,
		  struct tcp_sockets *ports, struct tcp_sockets *closable, outside_take take,
		  void *arg)
{
	struct descriptors mine = {0}, others = {0};
	struct reasons reasons = {.jobs = jobs, .njobs = njobs, .take = take, .arg = arg};

	descriptors_add_tree(&mine, tree);
	descriptors_add_others(&others, tree);
	if (tree->cut) {
		give(&reasons, "it has more than %d processes", TREE_MAX);
	} else if (mine.short_of_memory || others.short_of_memory) {
		give(&reasons, "out of memory or descriptors for the list of its open files");
	} else {
		look_at_directories(tree, &reasons);
		look_at_timers(&mine, &reasons);
		look_at_kinds(tree, &mine, &reasons);
		look_at_names(tree, &mine, &reasons);
		look_at_mapped_names(tree, &reasons);
		look_at_gpus(tree, &mine, &reasons);
		look_at_networks(tree, &mine, &others, ports, closable, &reasons);
		look_at_pipes(&mine, &others, &reasons);
		look_at_sockets(&mine, &others, &reasons);
		look_at_ipc(tree, &reasons);
		look_at_origins(tree, &reasons);
		look_at_sessions(tree, &reasons);
	}
	free(mine.all);
	free(others.all);
}
