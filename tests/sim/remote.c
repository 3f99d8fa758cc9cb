/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuCheckpointProcess* for other processes: each listens on a socket PID in the directory of
 * CUDAW_SIM_REMOTE. As in real drivers, threads of the process itself do the work, also while its
 * own calls wait.
 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listener = -1;

static struct sockaddr_un address(int pid)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d", sim.config.remote, pid);
	return addr;
}

static void *answer(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct checkpoint_call call;

	if (recv(fd, &call, sizeof(call), MSG_WAITALL) == sizeof(call)) {
		if (call.op == CHECKPOINT_TAKE || call.op == CHECKPOINT_RESTORE)
			wait_while_held(call.op == CHECKPOINT_TAKE ? TO_HOST : TO_DEVICE);
		pthread_mutex_lock(&sim.lock);
		/* Only a process that moves itself takes pairs of GPUs. */
		call.result = call.pairs ? CUDA_ERROR_NOT_SUPPORTED : checkpoint_run(&call, NULL);
		pthread_mutex_unlock(&sim.lock);
		send(fd, &call, sizeof(call), MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

static void *serve(void *unused)
{
	pthread_attr_t detached;
	pthread_t thread;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0 && pthread_create(&thread, &detached, answer, (void *)(intptr_t)fd))
			close(fd);
	}
	return unused;
}

/* Callers of the parent must not wait for a child, which has no thread that answers. */
static void after_fork(void)
{
	close(listener);
}

int remote_listen(void)
{
	struct sockaddr_un addr = address(getpid());
	pthread_t thread;

	if (!sim.config.remote)
		return 0;
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(addr.sun_path);
	if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(listener, 16))
		return -errno;
	pthread_atfork(NULL, NULL, after_fork);
	if (pthread_create(&thread, NULL, serve, NULL))
		return -EAGAIN;
	pthread_detach(thread);
	return 0;
}

CUresult remote_call(int pid, struct checkpoint_call *call)
{
	struct sockaddr_un addr = address(pid);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool known;

	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	known = !connect(fd, (struct sockaddr *)&addr, sizeof(addr)) &&
		send(fd, call, sizeof(*call), MSG_NOSIGNAL) == sizeof(*call) &&
		recv(fd, call, sizeof(*call), MSG_WAITALL) == sizeof(*call);
	close(fd);
	return known ? call->result : CUDA_ERROR_INVALID_VALUE;
}
