/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TEST_NVML_CHECKPOINT_H
#define CUDAW_TEST_NVML_CHECKPOINT_H
/*
 * The driver's checkpoint of a process that has called nvmlInit() alone: it has files of GPUs open, here that of
 * TEST_NVML_DEVICE, which the checkpoint closes and the restore opens again, or fails; meanwhile its calls wait [H200, driver
 * 580.159]. It answers as tests/sim/remote.c does, and takes any pairs of GPUs. A FIFO PID.held beside its socket holds
 * it up before it is locked, until somebody has written to the FIFO and closed it. With TEST_NVML_MAPS it maps the
 * device, as a process that has called cuInit() does.
 */
#include "tests/sim/sim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	CUprocessState state;
	const char *path;
	int file, listener;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .file = -1};

/* With the lock. */
static CUresult held_step(CUprocessState from, CUprocessState to)
{
	if (held.state != from)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (to == CU_PROCESS_STATE_CHECKPOINTED)
		close(held.file);
	if (from == CU_PROCESS_STATE_CHECKPOINTED)
		held.file = open(held.path, O_RDWR | O_CLOEXEC);
	if (held.file < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	held.state = to;
	pthread_cond_broadcast(&held.changed);
	return CUDA_SUCCESS;
}

static CUresult held_run(struct checkpoint_call *call)
{
	switch (call->op) {
	case CHECKPOINT_LOCK:
		return held_step(CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
	case CHECKPOINT_TAKE:
		return held_step(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
	case CHECKPOINT_RESTORE:
		return held_step(CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
	case CHECKPOINT_UNLOCK:
		return held_step(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
	case CHECKPOINT_STATE:
		call->value = (int)held.state;
		return CUDA_SUCCESS;
	case CHECKPOINT_THREAD:
		break;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static void held_up(void)
{
	char path[128], byte;
	int fd;

	snprintf(path, sizeof(path), "%s/%d.held", getenv("CUDAW_SIM_REMOTE"), getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && read(fd, &byte, 1) > 0)
		;
	if (fd >= 0)
		close(fd);
}

static void *held_serve(void *unused)
{
	struct checkpoint_call call;

	for (;;) {
		int fd = accept4(held.listener, NULL, NULL, SOCK_CLOEXEC);

		if (recv(fd, &call, sizeof(call), MSG_WAITALL) == sizeof(call)) {
			if (call.op == CHECKPOINT_LOCK)
				held_up();
			pthread_mutex_lock(&held.lock);
			call.result = held_run(&call);
			pthread_mutex_unlock(&held.lock);
			send(fd, &call, sizeof(call), MSG_NOSIGNAL);
		}
		close(fd);
	}
	return unused;
}

/* As NVIDIA's does when it begins [580.159.04]. */
static void held_load_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*get)(int *) =
		driver ? (CUresult(*)(int *))dlsym(driver, "cuDriverGetVersion") : NULL;
	int version;

	if (get)
		get(&version);
}

/* In nvmlInit(). */
static void held_begin(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const char *remote = getenv("CUDAW_SIM_REMOTE");
	pthread_t thread;

	held.path = getenv("TEST_NVML_DEVICE");
	if (!held.path || held.file >= 0)
		return;
	held_load_driver();
	held.file = open(held.path, O_RDWR | O_CLOEXEC);
	if (getenv("TEST_NVML_MAPS"))
		mmap(NULL, 1, PROT_READ, MAP_SHARED, held.file, 0);
	if (!remote)
		return;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d", remote, getpid());
	held.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(addr.sun_path);
	if (!bind(held.listener, (struct sockaddr *)&addr, sizeof(addr)) &&
	    !listen(held.listener, 16) && !pthread_create(&thread, NULL, held_serve, NULL))
		pthread_detach(thread);
}

/* In a call. */
static void held_wait(void)
{
	pthread_mutex_lock(&held.lock);
	while (held.state != CU_PROCESS_STATE_RUNNING)
		pthread_cond_wait(&held.changed, &held.lock);
	pthread_mutex_unlock(&held.lock);
}

#endif
