/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/outside.h"

#include "common/text.h"
#include "common/proc.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_SIZE 128

/* A descriptor of a process, by its link in /proc. */
struct opened {
	pid_t pid;
	int fd;
	bool reads, writes;
	ino_t inode;     /* of a pipe or socket, else 0 */
	char kind;       /* 'p'ipe, 's'ocket, 'g'pu */
	char target[64]; /* where a GPU is */
};

struct list {
	struct opened *all;
	size_t n, room;
	bool short_of_memory; /* some are missing */
};

/* "1234 (python)" */
static const char *process(pid_t pid, char *buf)
{
	char path[64], name[64] = "?";

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	host_read_line(path, name, sizeof(name));
	snprintf(buf, NAME_SIZE, "%d (", pid);
	format_copy(buf + strlen(buf), 64, name);
	strcat(buf, ")");
	return buf;
}

static bool classify(const char *target, struct opened *opened)
{
	unsigned long inode = 0;

	if (sscanf(target, "pipe:[%lu]", &inode) == 1)
		opened->kind = 'p';
	else if (sscanf(target, "socket:[%lu]", &inode) == 1)
		opened->kind = 's';
	else if (!strncmp(target, "/dev/nvidia", strlen("/dev/nvidia")))
		opened->kind = 'g';
	opened->inode = inode;
	format_copy(opened->target, sizeof(opened->target), target);
	return opened->kind;
}

static void add(struct list *list, const struct opened *opened)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct opened *all = realloc(list->all, room * sizeof(*all));

		list->short_of_memory |= !all;
		if (!all)
			return;
		list->all = all;
		list->room = room;
	}
	list->all[list->n++] = *opened;
}

static void add_process(struct list *list, pid_t pid)
{
	char path[64], target[PATH_MAX];
	struct dirent *entry;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && (entry = readdir(fds))) {
		struct opened opened = {.pid = pid, .fd = atoi(entry->d_name)};
		ssize_t len = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);
		struct stat st;

		if (len < 0 || fstatat(dirfd(fds), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		target[len] = '\0';
		opened.reads = st.st_mode & S_IRUSR;
		opened.writes = st.st_mode & S_IWUSR;
		if (classify(target, &opened))
			add(list, &opened);
	}
	if (fds)
		closedir(fds);
}

/* All other processes that can be seen, but this one. */
static void add_others(struct list *list, const struct tree *tree)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;

		if (pid && pid != getpid() && !tree_has(tree, pid))
			add_process(list, pid);
	}
	if (proc)
		closedir(proc);
}

static const struct opened *find(const struct list *list, char kind, ino_t inode, bool reads,
				 bool writes)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct opened *o = &list->all[i];

		if (o->kind == kind && o->inode == inode && (!reads || o->reads) &&
		    (!writes || o->writes))
			return o;
	}
	return NULL;
}

/* Whether somebody reads from a pipe that a process has for writing. */
static bool is_read(const struct opened *pipe)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pipe->pid, pipe->fd);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool pipes_stay_inside(const struct list *mine, const struct list *others, char *why,
			      size_t size)
{
	char name[NAME_SIZE], other[NAME_SIZE];

	for (size_t i = 0; i < mine->n; i++) {
		const struct opened *o = &mine->all[i], *end;

		if (o->kind != 'p' || find(mine, 'p', o->inode, !o->reads, !o->writes))
			continue;
		end = find(others, 'p', o->inode, !o->reads, !o->writes);
		if (!end && !(o->writes && is_read(o)))
			continue;
		snprintf(why, size, "descriptor %d of %s is a pipe %s %s, which stays behind",
			 o->fd, process(o->pid, name), o->writes ? "to" : "from",
			 end ? process(end->pid, other) : "a process that is not seen here");
		return false;
	}
	return true;
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
 * Connections by TCP in the network of the process @pid, those inside as well: CRIU does not take
 * them. proc_net_tcp(5) has the format.
 */
static bool has_no_tcp(const struct list *mine, pid_t pid, const char *table, char *why,
		       size_t size)
{
	char path[64], line[512], remote[64], text[INET6_ADDRSTRLEN + 16], name[NAME_SIZE];
	const struct opened *found = NULL;
	unsigned int state;
	unsigned long inode;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, table);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %*d: %*s %63s %x %*s %*s %*s %*d %*d %lu", remote, &state,
			   &inode) != 3 ||
		    state == 7 || state == 10)
			continue;
		found = inode ? find(mine, 's', inode, false, false) : NULL;
	}
	if (file)
		fclose(file);
	if (!found)
		return true;
	address_text(remote, text, sizeof(text));
	snprintf(why, size,
		 "descriptor %d of %s is a TCP connection to %s, which cannot be carried",
		 found->fd, process(found->pid, name), text);
	return false;
}

/* In all networks that the processes are in, each looked at once. */
static bool no_network_has_tcp(const struct tree *tree, const struct list *mine, char *why,
			       size_t size)
{
	ino_t seen[TREE_MAX];
	size_t n = 0, at;

	for (size_t i = 0; i < tree->n; i++) {
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
		if (!has_no_tcp(mine, tree->pids[i], "tcp", why, size) ||
		    !has_no_tcp(mine, tree->pids[i], "tcp6", why, size))
			return false;
	}
	return true;
}

/*
 * Ask the kernel for the Unix socket @inode. Its answer in @buf; its length, 0 where there is none.
 */
static ssize_t ask_unix(int netlink, ino_t inode, void *buf, size_t size)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req ask;
	} request = {
		.head = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST},
		.ask = {.sdiag_family = AF_UNIX,
			.udiag_states = -1,
			.udiag_ino = inode,
			.udiag_cookie = {~0U, ~0U},
			.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_NAME},
	};
	const struct nlmsghdr *head = buf;
	ssize_t len;

	if (send(netlink, &request, sizeof(request), 0) != sizeof(request))
		return 0;
	len = recv(netlink, buf, size, 0);
	return len >= (ssize_t)NLMSG_LENGTH(sizeof(struct unix_diag_msg)) &&
			       head->nlmsg_type == SOCK_DIAG_BY_FAMILY && head->nlmsg_len <= len
		       ? len
		       : 0;
}

/* An attribute of an answer, with its length in *@len; NULL: it has none. */
static const void *attribute(const void *answer, int type, size_t *len)
{
	const struct nlmsghdr *head = answer;
	size_t at = NLMSG_LENGTH(sizeof(struct unix_diag_msg));

	while (at + sizeof(struct nlattr) <= head->nlmsg_len) {
		const struct nlattr *a = (const void *)((const char *)answer + at);

		if (a->nla_len < sizeof(*a) || at + a->nla_len > head->nlmsg_len)
			break;
		*len = a->nla_len - NLA_HDRLEN;
		if (a->nla_type == type)
			return a + 1;
		at += NLA_ALIGN(a->nla_len);
	}
	return NULL;
}

/* The peer's inode; 0 where it has none. */
static uint32_t peer_of(int netlink, ino_t inode)
{
	_Alignas(struct nlmsghdr) char answer[1024];
	uint32_t peer = 0;
	size_t len = 0;
	const void *found = ask_unix(netlink, inode, answer, sizeof(answer))
				    ? attribute(answer, UNIX_DIAG_PEER, &len)
				    : NULL;

	if (found && len == sizeof(peer))
		memcpy(&peer, found, sizeof(peer));
	return peer;
}

static void name_of(int netlink, ino_t inode, char *buf, size_t size)
{
	_Alignas(struct nlmsghdr) char answer[1024];
	char text[NAME_SIZE] = "";
	size_t len = 0;
	const char *found = ask_unix(netlink, inode, answer, sizeof(answer))
				    ? attribute(answer, UNIX_DIAG_NAME, &len)
				    : NULL;

	/* Abstract names begin with a zero. */
	if (found && len)
		snprintf(text, sizeof(text), "%s%.*s", *found ? "" : "@", (int)(len - !*found),
			 found + !*found);
	format_copy(buf, size, text);
}

/* A descriptor that was sent and not received yet is lost, or the image cannot be restored. */
static bool is_sending(const struct opened *o)
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

static bool sockets_stay_inside(const struct list *mine, const struct list *others, char *why,
				size_t size)
{
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	char name[NAME_SIZE], other[NAME_SIZE], path[NAME_SIZE];
	bool good = true;

	for (size_t i = 0; i < mine->n && good; i++) {
		const struct opened *o = &mine->all[i], *end;
		ino_t peer;

		if (o->kind != 's')
			continue;
		if (is_sending(o)) {
			snprintf(why, size,
				 "a descriptor is under way to descriptor %d of %s, a Unix socket; "
				 "CRIU may not bring it back (it may work in a moment)",
				 o->fd, process(o->pid, name));
			good = false;
		}
		peer = netlink >= 0 && good ? peer_of(netlink, o->inode) : 0;
		if (!peer || find(mine, 's', peer, false, false))
			continue;
		end = find(others, 's', peer, false, false);
		name_of(netlink, peer, path, sizeof(path));
		snprintf(why, size,
			 "descriptor %d of %s is a Unix socket to %s%s%s, which stays behind",
			 o->fd, process(o->pid, name),
			 end ? process(end->pid, other) : "a process that is not seen here",
			 *path ? " at " : "", path);
		good = false;
	}
	if (netlink >= 0)
		close(netlink);
	return good;
}

/*
 * The kernel puts a word behind the name of a directory that was removed; others may be called so.
 */
static bool directories_are_there(const struct tree *tree, char *why, size_t size)
{
	static const char removed[] = " (deleted)";
	char link[64], path[PATH_MAX], name[NAME_SIZE];
	struct stat named, st;

	for (size_t i = 0; i < tree->n; i++) {
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
		snprintf(why, size, "the working directory of %s was removed: %s",
			 process(tree->pids[i], name), path);
		return false;
	}
	return true;
}

/* The driver's checkpoint takes those of the process that uses CUDA, the first one. */
static bool children_have_no_gpu(const struct tree *tree, const struct list *mine, char *why,
				 size_t size)
{
	char name[NAME_SIZE];

	for (size_t i = 0; i < mine->n; i++) {
		const struct opened *o = &mine->all[i];

		if (o->kind != 'g' || o->pid == tree->pids[0])
			continue;
		snprintf(why, size,
			 "its child %s has %s open: a snapshot takes one process that uses a GPU",
			 process(o->pid, name), o->target);
		return false;
	}
	return true;
}

bool outside_none(const struct tree *tree, char *why, size_t size)
{
	struct list mine = {0}, others = {0};
	bool none = false;

	for (size_t i = 0; i < tree->n; i++)
		add_process(&mine, tree->pids[i]);
	add_others(&others, tree);
	if (tree->cut)
		snprintf(why, size, "it has more than %d processes", TREE_MAX);
	else if (mine.short_of_memory || others.short_of_memory)
		snprintf(why, size, "out of memory for what its processes have open");
	else
		none = directories_are_there(tree, why, size) &&
		       children_have_no_gpu(tree, &mine, why, size) &&
		       no_network_has_tcp(tree, &mine, why, size) &&
		       pipes_stay_inside(&mine, &others, why, size) &&
		       sockets_stay_inside(&mine, &others, why, size);
	free(mine.all);
	free(others.all);
	return none;
}
