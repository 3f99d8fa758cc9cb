/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/peer.h"
#include "common/clock.h"
#include "common/forks.h"
#include "common/ownfd.h"
#include "common/rundir.h"
#include "common/text.h"
#include "common/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "sharing: "
#include "common/log.h"

#define ANSWER_MS  1000 /* for a process to answer */
#define REQUEST_MS 200  /* for a process that has connected to send its request */
#define LISTEN_MS  3000 /* for a process that lives to listen again */
#define AGAIN_MS   10   /* between two tries to connect */
#define RETRY_MS   1000 /* until a lost socket is made again, if that failed */
#define FULL_MS    10   /* between two tries to accept while no descriptor is free */

FORKS_LOCK(lock); /* of what follows, while it is made */
static bool started;
static struct share_process self;
static uint64_t own_start;                 /* rundir_start_time() of this process */
static struct ownfd listener = OWNFD_NONE; /* the thread's, once that runs */
static peer_answer_fn answer_request;

const struct share_process *peer_self(void)
{
	return &self;
}

bool peer_is_self(const struct share_process *process)
{
	return __atomic_load_n(&started, __ATOMIC_ACQUIRE) && process->pid == self.pid &&
	       !memcmp(process->instance, self.instance, sizeof(self.instance));
}

/* The control message of one descriptor. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_answer(int to, const struct share_answer *answer, int fd)
{
	union control control = {.align = {.cmsg_len = CMSG_LEN(sizeof(fd)),
					   .cmsg_level = SOL_SOCKET,
					   .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {(void *)answer, share_answer_size(answer)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_LEN(sizeof(fd));
	}
	if (sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		pr_debug("answer: %s", error_text(errno));
}

static bool is_of_our_user(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid != geteuid())
		return false;
	*pid = peer.pid;
	return true;
}

/* Wait until @fd can be read. */
static bool wait_for(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) > 0;
}

/* Descriptors that come with a request are dropped by the kernel, as there is no place for them. */
static void serve_client(int client)
{
	struct share_request request;
	struct share_answer answer;
	struct share_process from;
	unsigned char data[sizeof(request) + 1];
	ssize_t size;
	int fd = -1;

	if (!is_of_our_user(client, &from.pid) || !wait_for(client, REQUEST_MS))
		return;
	size = recv(client, data, sizeof(data), MSG_DONTWAIT);
	if (size < 0 || share_request_parse(data, (size_t)size, &request))
		return;
	memcpy(from.instance, request.from, sizeof(from.instance));
	share_answer_begin(&answer);
	if (memcmp(request.to, self.instance, sizeof(self.instance)))
		answer.result = SHARE_STRANGER;
	else
		answer_request(&request, &from, &answer, &fd);
	send_answer(client, &answer, fd);
	if (fd >= 0)
		close(fd);
}

/* True if this process was started again from its image (CRIU), which has other files. */
static bool is_restored(void)
{
	uint64_t start = rundir_start_time(getpid());

	return start && own_start && start != RUNDIR_START_UNKNOWN &&
	       own_start != RUNDIR_START_UNKNOWN && start != own_start;
}

/* The program has closed our socket, as it closes all descriptors; or this is a process image. */
static void mend_listener(void)
{
	if (is_restored()) {
		own_start = rundir_start_time(getpid());
		ownfd_take_restored(&listener);
	}
	if (ownfd_get(&listener) >= 0)
		return;
	ownfd_set(&listener, rundir_listen(RUNDIR_PEER, true));
	if (ownfd_get(&listener) < 0)
		usleep(RETRY_MS * 1000);
}

static void *serve(void *unused)
{
	threads_own_floats();
	for (;;) {
		int fd = ownfd_get(&listener), client;

		if (fd < 0) {
			mend_listener();
			continue;
		}
		wait_for(fd, -1);
		if (ownfd_is_lost(&listener))
			continue;
		client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (client >= 0) {
			serve_client(client);
			close(client);
		} else {
			usleep(FULL_MS * 1000);
		}
	}
	return unused;
}

static int start_thread(void)
{
	sigset_t all, mask;
	pthread_t thread;
	int error;

	/* The program's handlers run in the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	error = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (error)
		return -error;
	pthread_setname_np(thread, "cudaw-peer");
	pthread_detach(thread);
	return 0;
}

static void unlink_socket(void)
{
	if (forks_is_ours() && started)
		rundir_unlink(RUNDIR_PEER, getpid());
}

/* The socket is the parent's, and so is the name. */
static void begin_anew_in_child(void)
{
	ownfd_close(&listener);
	started = false;
}
FORKS_CHILD(begin_anew_in_child);

static int start(peer_answer_fn answer)
{
	static bool unlinks, said;
	int fd, error;

	if (getrandom(self.instance, sizeof(self.instance), 0) != sizeof(self.instance))
		return -EIO;
	fd = rundir_listen(RUNDIR_PEER, said);
	said = true;
	if (fd < 0)
		return fd;
	ownfd_set(&listener, fd);
	self.pid = getpid();
	own_start = rundir_start_time(getpid());
	answer_request = answer;
	error = start_thread();
	if (error) {
		pr_err_once("no thread to share memory with other processes: %s",
			    error_text(-error));
		ownfd_close(&listener);
		rundir_unlink(RUNDIR_PEER, getpid());
		return error;
	}
	if (!unlinks)
		unlinks = !atexit(unlink_socket);
	return 0;
}

int peer_start(peer_answer_fn answer)
{
	int error = 0;

	if (__atomic_load_n(&started, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&lock);
	if (!started) {
		error = start(answer);
		__atomic_store_n(&started, !error, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* A connection to the process, or a negative errno as of peer_ask(). */
static int connect_to(const struct share_process *to)
{
	char path[PATH_MAX];
	const char *why;
	pid_t pid;
	int dir, fd;
	int error = rundir_path(geteuid(), path, sizeof(path), &why);

	dir = error ? error : rundir_open(path, geteuid(), &why);
	if (dir < 0)
		return dir;
	fd = rundir_connect(RUNDIR_PEER, dir, to->pid);
	close(dir);
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return rundir_start_time(to->pid) ? -ECONNREFUSED : -ESRCH;
	if (fd < 0)
		return fd;
	if (is_of_our_user(fd, &pid) && pid == to->pid)
		return fd;
	close(fd);
	return -EPERM;
}

/* Receive an answer, and the descriptor that may come with it. Returns its bytes. */
static ssize_t receive(int from, struct share_answer *raw, int *fd)
{
	union control control;
	struct iovec iov = {raw, sizeof(*raw)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t n = recvmsg(from, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *cmsg = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);

	if (cmsg && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS &&
	    cmsg->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(cmsg), sizeof(*fd));
	return n;
}

static int converse(int with, const struct share_request *request, struct share_answer *answer,
		    int *fd)
{
	struct share_answer raw;
	ssize_t size;
	int error;

	if (send(with, request, sizeof(*request), MSG_NOSIGNAL) != sizeof(*request) ||
	    !wait_for(with, ANSWER_MS))
		return -EAGAIN;
	size = receive(with, &raw, fd);
	/* It ended, or lost its socket, without an answer: the next attempt tells. */
	if (size <= 0)
		return -EAGAIN;
	error = share_answer_parse(&raw, (size_t)size, answer);
	if (!error && answer->result == SHARE_STRANGER)
		error = -ESRCH;
	return error;
}

/* A process whose program has closed our socket listens again in a moment; one that was replaced by
 * exec() does not.
 */
static int connect_patiently(const struct share_process *to)
{
	double until_ms = clock_ms() + LISTEN_MS;
	int fd;

	while ((fd = connect_to(to)) == -ECONNREFUSED)
		if (clock_ms() < until_ms)
			usleep(AGAIN_MS * 1000);
		else
			return -ESRCH;
	return fd;
}

int peer_ask(const struct share_process *to, struct share_request *request,
	     struct share_answer *answer, int *fd)
{
	int with = connect_patiently(to), error;

	*fd = -1;
	if (with < 0)
		return with;
	memcpy(request->to, to->instance, sizeof(request->to));
	memcpy(request->from, self.instance, sizeof(request->from));
	error = converse(with, request, answer, fd);
	close(with);
	/* A child of an exporter that has ended may have its socket, without knowing it. */
	if (error == -EAGAIN && !rundir_start_time(to->pid))
		error = -ESRCH;
	if (error && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return error;
}
