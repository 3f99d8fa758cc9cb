/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/tcp.h"

#include "common/system/shortage.h"
#include "tools/process/criu/descriptors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REST_MS 2000
#define LOOK_MS 10

void tcp_add(struct tcp_sockets *sockets, const struct tcp_socket *socket)
{
	if (sockets->n == sockets->room) {
		size_t room = sockets->room ? 2 * sockets->room : 64;
		struct tcp_socket *all = realloc(sockets->all, room * sizeof(*all));

		sockets->short_of_memory |= !all;
		if (!all)
			return;
		sockets->all = all;
		sockets->room = room;
	}
	sockets->all[sockets->n++] = *socket;
}

/* An address in hexadecimal: one or four 32-bit words of the machine, ':' and a port. */
static bool read_end(const char *text, struct tcp_end *end)
{
	size_t digits = strcspn(text, ":");
	uint32_t words[4] = {0, 0, htonl(0xffff)};
	unsigned int port;

	if ((digits != 8 && digits != 32) || sscanf(text + digits, ":%x", &port) != 1)
		return false;
	for (size_t i = 0; i < digits / 8; i++)
		if (sscanf(text + 8 * i, "%8x", &words[digits == 8 ? 3 : i]) != 1)
			return false;
	memcpy(&end->address, words, sizeof(words));
	end->port = port;
	return true;
}

static void add_table(struct tcp_sockets *sockets, pid_t pid, const char *table)
{
	char path[64], line[512], local[64], remote[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, table);
	file = fopen(path, "re");
	sockets->short_of_memory |= !file && is_shortage(-errno);
	while (file && fgets(line, sizeof(line), file)) {
		struct tcp_socket s = {0};
		unsigned long inode;

		if (sscanf(line, " %*d: %63s %63s %x %x:%x %*s %*s %*d %*d %lu", local, remote,
			   &s.state, &s.unsent, &s.unread, &inode) != 6 ||
		    !read_end(local, &s.local) || !read_end(remote, &s.remote))
			continue;
		s.inode = inode;
		tcp_add(sockets, &s);
	}
	if (file)
		fclose(file);
}

/* Whether the network namespace of @pid is not among the *@n of @seen, where it is put then. */
static bool is_new_network(pid_t pid, ino_t seen[TREE_MAX], size_t *n)
{
	struct stat st = {0};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &st))
		return true;
	for (size_t i = 0; i < *n; i++)
		if (seen[i] == st.st_ino)
			return false;
	seen[(*n)++] = st.st_ino;
	return true;
}

bool tcp_networks(const struct tree *tree,
		  bool (*look)(void *arg, const struct tcp_sockets *sockets), void *arg)
{
	struct tcp_sockets sockets = {0};
	ino_t seen[TREE_MAX];
	size_t n = 0;
	bool goes_on = true;

	for (size_t i = 0; i < tree->n && goes_on; i++) {
		if (!is_new_network(tree->pids[i], seen, &n))
			continue;
		sockets.n = 0;
		add_table(&sockets, tree->pids[i], "tcp");
		add_table(&sockets, tree->pids[i], "tcp6");
		goes_on = look(arg, &sockets);
	}
	free(sockets.all);
	return !sockets.short_of_memory;
}

bool tcp_are_connected(const struct tcp_sockets *sockets)
{
	for (size_t i = 0; i < sockets->n; i++)
		if (sockets->all[i].state != TCP_IS_LISTENING)
			return true;
	return false;
}

bool tcp_is_waiting(const struct tcp_socket *socket)
{
	return !socket->inode && (socket->state == TCP_IS_OPEN || socket->state == TCP_IS_COMING ||
				  socket->state == TCP_IS_LEFT);
}

static bool same_end(const struct tcp_end *a, const struct tcp_end *b)
{
	return a->port == b->port && IN6_ARE_ADDR_EQUAL(&a->address, &b->address);
}

static const struct tcp_socket *find(const struct tcp_sockets *sockets, const struct tcp_end *local,
				     const struct tcp_end *remote)
{
	for (size_t i = 0; i < sockets->n; i++)
		if (same_end(&sockets->all[i].local, local) &&
		    same_end(&sockets->all[i].remote, remote))
			return &sockets->all[i];
	return NULL;
}

const struct tcp_socket *tcp_peer(const struct tcp_sockets *sockets,
				  const struct tcp_socket *socket)
{
	return find(sockets, &socket->remote, &socket->local);
}

const struct tcp_socket *tcp_same(const struct tcp_sockets *sockets,
				  const struct tcp_socket *socket)
{
	return find(sockets, &socket->local, &socket->remote);
}

static bool is_any(const struct in6_addr *address)
{
	return IN6_IS_ADDR_UNSPECIFIED(address) ||
	       (IN6_IS_ADDR_V4MAPPED(address) && !address->s6_addr32[3]);
}

bool tcp_serves(const struct tcp_socket *listening, const struct tcp_end *local)
{
	return listening->state == TCP_IS_LISTENING && listening->local.port == local->port &&
	       (is_any(&listening->local.address) ||
		IN6_ARE_ADDR_EQUAL(&listening->local.address, &local->address));
}

const char *tcp_text(const struct tcp_end *end, char text[TCP_TEXT_SIZE])
{
	bool is_4 = IN6_IS_ADDR_V4MAPPED(&end->address);
	char host[INET6_ADDRSTRLEN];

	inet_ntop(is_4 ? AF_INET : AF_INET6,
		  is_4 ? &end->address.s6_addr[12] : end->address.s6_addr, host, sizeof(host));
	snprintf(text, TCP_TEXT_SIZE, is_4 ? "%s:%u" : "[%s]:%u", host, end->port);
	return text;
}

bool tcp_parse(const char *text, struct tcp_end *end)
{
	struct in6_addr mapped = IN6ADDR_ANY_INIT;
	char host[INET6_ADDRSTRLEN];
	int used = 0;

	mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
	if (sscanf(text, "[%45[0-9a-f:.]]:%hu%n", host, &end->port, &used) == 2 && !text[used] &&
	    inet_pton(AF_INET6, host, &end->address) == 1)
		return true;
	end->address = mapped;
	return sscanf(text, "%45[0-9.]:%hu%n", host, &end->port, &used) == 2 && !text[used] &&
	       inet_pton(AF_INET, host, &end->address.s6_addr[12]) == 1;
}

/* Whether one of @sockets, whose processes have them, is the socket @inode. */
static bool has_inode(const struct tcp_sockets *sockets, ino_t inode)
{
	for (size_t i = 0; i < sockets->n && inode; i++)
		if (sockets->all[i].inode == inode)
			return true;
	return false;
}

/* Whether one of the connections @of is as @is says, among the sockets of its network. */
struct search {
	const struct tcp_sockets *of;
	bool (*is)(const struct tcp_socket *socket, const struct tcp_sockets *sockets);
	bool found;
};

static bool search_network(void *arg, const struct tcp_sockets *sockets)
{
	struct search *search = arg;

	for (size_t i = 0; i < sockets->n && !search->found; i++)
		search->found = has_inode(search->of, sockets->all[i].inode) &&
				search->is(&sockets->all[i], sockets);
	return !search->found;
}

/* 1: one of @of, which processes of @tree have, @is so; 0: none; or -ENOMEM. */
static int any_is(const struct tree *tree, const struct tcp_sockets *of,
		  bool (*is)(const struct tcp_socket *socket, const struct tcp_sockets *sockets))
{
	struct search search = {.of = of, .is = is};

	return tcp_networks(tree, search_network, &search) ? search.found : -ENOMEM;
}

static bool is_under_way(const struct tcp_socket *socket, const struct tcp_sockets *sockets)
{
	(void)sockets;
	return socket->unsent;
}

int tcp_rest(const struct tree *tree, const struct tcp_sockets *sockets)
{
	int any = 1;

	for (int left = REST_MS; any > 0 && left > 0; left -= LOOK_MS) {
		any = any_is(tree, sockets, is_under_way);
		if (any > 0)
			usleep(LOOK_MS * 1000);
	}
	return any > 0 ? -EAGAIN : any;
}

bool tcp_is_left(const struct tcp_socket *socket, const struct tcp_socket *peer)
{
	if (peer && (peer->inode || tcp_is_waiting(peer)))
		return false;
	return peer || socket->state == TCP_IS_LEFT;
}

bool tcp_may_end(const struct tcp_socket *socket, const struct tcp_socket *peer)
{
	if (socket->state == TCP_IS_NEW)
		return false;
	return !tcp_is_left(socket, peer) || (socket->state == TCP_IS_LEFT && !socket->unread);
}

static bool is_connection(int fd)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof(peer);

	return !getpeername(fd, (struct sockaddr *)&peer, &size) &&
	       (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

/* Gets our copy @fd of a connection of another process. 0 or a negative errno. */
typedef int (*take_connection)(void *arg, int fd);

/* Those of the process that is open as @pid_fd. As tcp_repair(). */
static int each_of_process(pid_t pid, int pid_fd, take_connection take, void *arg)
{
	struct descriptors mine = {0};
	int ret = 0;

	descriptors_add_process(&mine, pid);
	for (size_t i = 0; i < mine.n && ret != -EPERM; i++) {
		int fd, err = 0;

		if (mine.all[i].kind != DESCRIPTOR_SOCKET)
			continue;
		fd = syscall(SYS_pidfd_getfd, pid_fd, mine.all[i].fd, 0);
		if (fd < 0) /* it is closed, or the process has ended; or we may not */
			err = errno == EBADF || errno == ESRCH ? 0 : -EACCES;
		else if (is_connection(fd))
			err = take(arg, fd);
		if (fd >= 0)
			close(fd);
		ret = err ? err : ret;
	}
	if (!ret && mine.short_of_memory)
		ret = -EACCES;
	free(mine.all);
	return ret;
}

/* Those of the processes that @tree was found with, and of no others that have their ids by now. As tcp_repair(). */
static int each_connection(const struct tree *tree, take_connection take, void *arg)
{
	int ret = 0;

	for (size_t i = 0; i < tree->n; i++) {
		const struct process process = {.pid = tree->pids[i], .start = tree->starts[i]};
		struct process now;
		int pid_fd = process_open(&process), err = 0;

		if (pid_fd < 0)
			err = pid_fd == -ESRCH ? 0 : -EACCES;
		else if (process_find(process.pid, &now) && process_is_of(&now, tree->owner))
			err = each_of_process(process.pid, pid_fd, take, arg);
		if (pid_fd >= 0)
			close(pid_fd);
		ret = err && ret != -EPERM ? err : ret;
	}
	return ret;
}

/* What is to be closed, and how many were. */
struct ending {
	const struct tcp_sockets *sockets;
	size_t *closed;
};

/* The other end may have closed it after it was looked for in the kernel's lists, and what it sent before would be lost. */
static bool is_left_unread(int fd)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);
	int unread;

	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) &&
	       info.tcpi_state == TCP_IS_LEFT && !ioctl(fd, SIOCINQ, &unread) && unread;
}

/* tcp(7) calls this "disconnect"; it takes no privilege. */
static int end(void *arg, int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	const struct ending *ending = arg;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!has_inode(ending->sockets, st.st_ino))
		return 0;
	if (is_left_unread(fd))
		return -EAGAIN;
	if (connect(fd, &nobody, sizeof(nobody)))
		return -errno;
	++*ending->closed;
	return 0;
}

static bool may_not_end(const struct tcp_socket *socket, const struct tcp_sockets *sockets)
{
	return !tcp_may_end(socket, tcp_peer(sockets, socket));
}

int tcp_end(const struct tree *tree, const struct tcp_sockets *sockets, size_t *closed)
{
	struct ending ending = {.sockets = sockets, .closed = closed};
	int any = any_is(tree, sockets, may_not_end);

	if (any)
		return any > 0 ? -EAGAIN : any;
	return each_connection(tree, end, &ending);
}

static int repair(void *arg, int fd)
{
	const bool *on = arg;
	int value = *on, now = value;
	socklen_t size = sizeof(now);

	if (getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &now, &size) || !now == !value)
		return 0;
	return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &value, sizeof(value)) ? -EPERM : 0;
}

int tcp_repair(const struct tree *tree, bool on)
{
	return each_connection(tree, repair, &on);
}
