/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/unix_sockets.h"

#include "common/text.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>

#define NAME_SIZE   128
#define ANSWER_SIZE 1024
#define LIST_SIZE   8192 /* the kernel's longest answer is shorter than a page */
#define LISTENING   10   /* TCP_LISTEN of the kernel's include/net/tcp_states.h */

int unix_sockets_open(void)
{
	return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

/*
 * Ask the kernel to @show this of the Unix socket @inode. The answer is in @buf. Returns its length;
 * 0: no answer.
 */
static ssize_t ask_unix(int netlink, ino_t inode, uint32_t show, void *buf, size_t size)
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
			.udiag_show = show},
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
	_Alignas(struct nlmsghdr) char answer[ANSWER_SIZE];
	uint32_t peer = 0;
	size_t len = 0;
	const void *found = ask_unix(netlink, inode, UDIAG_SHOW_PEER, answer, sizeof(answer))
				    ? attribute(answer, UNIX_DIAG_PEER, &len)
				    : NULL;

	if (found && len == sizeof(peer))
		memcpy(&peer, found, sizeof(peer));
	return peer;
}

/* The lengths of its queues; false: the kernel does not tell. */
static bool find_queues(int netlink, ino_t inode, bool *listens, struct unix_diag_rqlen *queues)
{
	_Alignas(struct nlmsghdr) char answer[ANSWER_SIZE];
	const struct unix_diag_msg *msg = NLMSG_DATA((struct nlmsghdr *)answer);
	size_t len = 0;
	const void *found = ask_unix(netlink, inode, UDIAG_SHOW_RQLEN, answer, sizeof(answer))
				    ? attribute(answer, UNIX_DIAG_RQLEN, &len)
				    : NULL;

	if (!found || len != sizeof(*queues))
		return false;
	*listens = msg->udiag_state == LISTENING;
	memcpy(queues, found, sizeof(*queues));
	return true;
}

size_t unix_sockets_waiting(int netlink, ino_t inode, uint32_t *ends, size_t room)
{
	_Alignas(struct nlmsghdr) char answer[LIST_SIZE];
	struct unix_diag_rqlen queues;
	const void *found;
	size_t len = 0;
	bool listens;

	if (!find_queues(netlink, inode, &listens, &queues) || !listens || !queues.udiag_rqueue)
		return 0;
	found = ask_unix(netlink, inode, UDIAG_SHOW_ICONS, answer, sizeof(answer))
			? attribute(answer, UNIX_DIAG_ICONS, &len)
			: NULL;
	memset(ends, 0, room * sizeof(*ends));
	if (found)
		memcpy(ends, found, MIN(len, room * sizeof(*ends)));
	return queues.udiag_rqueue;
}

uint32_t unix_sockets_unread(int netlink, ino_t inode)
{
	struct unix_diag_rqlen queues;
	bool listens;

	return find_queues(netlink, inode, &listens, &queues) ? queues.udiag_wqueue : 0;
}

void unix_sockets_name(int netlink, ino_t inode, char *buf, size_t size)
{
	_Alignas(struct nlmsghdr) char answer[ANSWER_SIZE];
	char text[NAME_SIZE] = "";
	size_t len = 0;
	const char *found = ask_unix(netlink, inode, UDIAG_SHOW_NAME, answer, sizeof(answer))
				    ? attribute(answer, UNIX_DIAG_NAME, &len)
				    : NULL;

	/* Abstract names begin with a zero. */
	if (found && len)
		snprintf(text, sizeof(text), "%s%.*s", *found ? "" : "@", (int)(len - !*found),
			 found + !*found);
	format_copy(buf, size, text);
}
