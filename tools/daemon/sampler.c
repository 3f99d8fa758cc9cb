/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/sampler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Questions and answers are messages. A question is the UUID, with its zero. */
static int channel = -1;

int sampler_fd(void)
{
	return channel;
}

static void answer_all(int fd)
{
	char uuid[NVML_UUID_SIZE];

	nvml_open();
	while (recv(fd, uuid, sizeof(uuid), 0) == sizeof(uuid)) {
		struct sample sample = {0};
		int count;

		memcpy(sample.uuid, uuid, sizeof(uuid));
		if (nvml_memory(uuid, &sample.total, &sample.free))
			sample.total = sample.free = 0;
		count = sample.total ? nvml_holders(uuid, sample.holders) : 0;
		sample.nholders = count > 0 ? count : 0;
		if (send(fd, &sample, sizeof(sample), MSG_NOSIGNAL) < 0)
			return;
	}
}

static void child_main(int fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(fd, STDIN_FILENO) >= 0) {
		closefrom(STDERR_FILENO + 1);
		answer_all(STDIN_FILENO);
	}
	_exit(0);
}

static int start(void)
{
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	pid = fork();
	if (pid == 0)
		child_main(fds[1]);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return -EAGAIN;
	}
	channel = fds[0];
	return 0;
}

int sampler_ask(const char *uuid)
{
	char text[NVML_UUID_SIZE] = "";
	int err = channel < 0 ? start() : 0;

	if (err)
		return err;
	snprintf(text, sizeof(text), "%s", uuid);
	return send(channel, text, sizeof(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int sampler_take(struct sample *sample)
{
	ssize_t got = channel < 0 ? 0 : recv(channel, sample, sizeof(*sample), MSG_DONTWAIT);

	if (got == sizeof(*sample))
		return 1;
	if (channel < 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
		return 0;
	close(channel);
	channel = -1;
	return -ECHILD;
}
