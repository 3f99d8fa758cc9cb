/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TESTS_DESCRIPTORS_H
#define CUDAW_TESTS_DESCRIPTORS_H
/* Messages with descriptors between the processes of a test program. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#define DESCRIPTORS_MAX 64 /* in a message */

union descriptors_room {
	struct cmsghdr head;
	char space[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
};

/* Send the @size bytes at @text to @socket, with @count descriptors, which stay open. False: it is gone. */
static inline bool descriptors_send(int socket, const void *text, size_t size, const int *fds,
				    size_t count)
{
	union descriptors_room control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int) * count),
						   .cmsg_level = SOL_SOCKET,
						   .cmsg_type = SCM_RIGHTS}};
	struct iovec bytes = {(void *)text, size};
	struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};

	if (count) {
		memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * count);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

/*
 * Receive @size bytes from @socket, and as many of @count descriptors as come with them; the others become -1.
 * False: it is gone.
 */
static inline bool descriptors_receive(int socket, void *text, size_t size, int *fds, size_t count)
{
	union descriptors_room control;
	struct iovec bytes = {text, size};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
	size_t room = sizeof(int) * count, came = 0;
	ssize_t got;

	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)size)
		return false;
	if (message.msg_controllen >= CMSG_LEN(0))
		came = control.head.cmsg_len - CMSG_LEN(0);
	memset(fds, -1, room);
	memcpy(fds, CMSG_DATA(&control.head), came < room ? came : room);
	return true;
}

#endif
