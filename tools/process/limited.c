/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/limited.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ONLY_FD 3   /* of the child, beside the standard ones */
#define END_MS  200 /* for a child that was killed to be gone */
#define LOOK_MS 100 /* between checks of a child's progress */

static void close_others(int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0 || (fd != ONLY_FD && dup2(fd, ONLY_FD) < 0))
		_exit(1);
	closefrom(ONLY_FD + 1);
}

int limited_begin(struct limited *limited, void (*work)(void *arg, int fd), void *arg)
{
	pid_t parent = getpid();
	int pair[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	limited->pid = fork();
	if (!limited->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close_others(pair[1]);
		work(arg, ONLY_FD);
		_exit(0);
	}
	err = limited->pid < 0 ? -errno : 0;
	close(pair[1]);
	limited->fd = pair[0];
	if (err)
		close(pair[0]);
	return err;
}

int limited_wait(const struct limited *limited, const volatile unsigned int *progress)
{
	struct pollfd child = {.fd = limited->fd, .events = POLLIN};
	unsigned int last = progress ? *progress : 0;

	for (int waited = 0; waited < LIMITED_MS; waited += LOOK_MS) {
		if (poll(&child, 1, LOOK_MS) > 0)
			return 0;
		if (progress && *progress != last) {
			last = *progress;
			waited = 0;
		}
	}
	return -ETIMEDOUT;
}

void limited_end(struct limited *limited)
{
	struct pollfd over = {.fd = limited->fd, .events = POLLIN};
	char byte;

	/* A child that has said all exits at once. One that hangs is left to init in the end. */
	kill(limited->pid, SIGKILL);
	while (poll(&over, 1, END_MS) > 0 && recv(limited->fd, &byte, 1, 0) > 0)
		;
	waitpid(limited->pid, NULL, over.revents & POLLHUP ? 0 : WNOHANG);
	close(limited->fd);
}

struct opening {
	int (*work)(void *arg);
	void *arg;
};

union fd_message {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* In the child: the result as a message, with the descriptor if there is one. */
static void open_and_send(void *arg, int to)
{
	const struct opening *opening = arg;
	int fd = opening->work(opening->arg);
	struct iovec iov = {&fd, sizeof(fd)};
	union fd_message control = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
	}
	sendmsg(to, &msg, MSG_NOSIGNAL);
}

static int receive(int from)
{
	int result = -EIO;
	struct iovec iov = {&result, sizeof(result)};
	union fd_message control = {0};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *cmsg;

	if (recvmsg(from, &msg, MSG_CMSG_CLOEXEC) != sizeof(result))
		return -EIO;
	if (result < 0)
		return result;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS)
		return -EMFILE;
	memcpy(&result, CMSG_DATA(cmsg), sizeof(result));
	return result;
}

int limited_open(int (*work)(void *arg), void *arg)
{
	struct opening opening = {work, arg};
	struct limited limited;
	int fd = limited_begin(&limited, open_and_send, &opening);

	if (fd < 0)
		return fd;
	fd = limited_wait(&limited, NULL);
	if (!fd)
		fd = receive(limited.fd);
	limited_end(&limited);
	return fd;
}
