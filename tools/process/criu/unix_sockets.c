/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/unix_sockets.h"

#include "common/text.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define NAME_SIZE 128

int unix_sockets_open(void)
{
	return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

/*
 * Ask the kernel for the Unix socket @inode. The answer is in @buf. Returns its length; 0: no
 * answer.
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

uint32_t unix_sockets_peer(int netlink, ino_t inode)
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

void unix_sockets_name(int netlink, ino_t inode, char *buf, size_t size)
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
