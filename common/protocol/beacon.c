/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/beacon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX "cudaw-beacon-" /* after the zero byte of an abstract address */

static socklen_t address_of(const struct beacon *beacon, struct sockaddr_un *addr)
{
	char *text = addr->sun_path + 1;
	int len = sprintf(text, PREFIX);

	addr->sun_family = AF_UNIX;
	addr->sun_path[0] = '\0';
	for (size_t i = 0; i < sizeof(beacon->id); i++)
		len += sprintf(text + len, "%02x", beacon->id[i]);
	return offsetof(struct sockaddr_un, sun_path) + 1 + len;
}

static int socket_new(void)
{
	return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int beacon_make(const void *data, size_t size, struct beacon *beacon)
{
	struct beacon made;
	struct sockaddr_un addr;
	struct iovec iov = {(void *)data, size};
	struct msghdr self = {.msg_name = &addr, .msg_iov = &iov, .msg_iovlen = 1};
	int fd, error;

	if (getrandom(made.id, sizeof(made.id), 0) != sizeof(made.id))
		return -EIO;
	fd = socket_new();
	if (fd < 0)
		return -errno;
	self.msg_namelen = address_of(&made, &addr);
	if (!bind(fd, (struct sockaddr *)&addr, self.msg_namelen) &&
	    sendmsg(fd, &self, MSG_NOSIGNAL) == (ssize_t)size) {
		*beacon = made;
		return fd;
	}
	error = -errno;
	close(fd);
	return error;
}

static bool is_beacon(int fd)
{
	struct sockaddr_un addr = {0};
	socklen_t len = sizeof(addr);

	return !getsockname(fd, (struct sockaddr *)&addr, &len) && addr.sun_family == AF_UNIX &&
	       len > offsetof(struct sockaddr_un, sun_path) && !addr.sun_path[0] &&
	       !strncmp(addr.sun_path + 1, PREFIX, strlen(PREFIX));
}

ssize_t beacon_read(int fd, void *data, size_t size)
{
	ssize_t got =
		is_beacon(fd) ? recv(fd, data, size, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT) : -1;

	return got < 0 ? -ENOENT : got;
}

bool beacon_is_held(const struct beacon *beacon)
{
	struct sockaddr_un addr;
	socklen_t len = address_of(beacon, &addr);
	int fd = socket_new();
	bool held = fd < 0 || !connect(fd, (struct sockaddr *)&addr, len) || errno != ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return held;
}
