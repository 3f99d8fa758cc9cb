/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/sharers.h"
#include "common/system/forks.h"
#include "common/system/ownfd.h"
#include "common/protocol/rundir.h"
#include "common/text.h"
#include "common/system/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOG_PREFIX "sharing: "
#include "common/log.h"

#define ANSWER_MS  1000 /* for a process to answer */
#define REQUEST_MS 200  /* for a process that has connected to send its request */
#define NAME_MS    1000 /* between two looks whether the socket has its name, and be_idle() */
#define RETRY_MS   1000 /* until a lost socket is made again, if that failed */
#define BACKLOG    64
#define FULL_MS    10 /* between two tries to accept while no descriptor is free */

FORKS_LOCK(lock); /* of what follows, while it is made */
static bool started;
static struct sharing_process self;
static char job[RUNDIR_ID_SIZE]; /* its ID */
static struct rundir_home home;
static uint64_t own_start; /* rundir_start_time() of this process */
static sem_t begun;        /* the thread has set the next one */
static pid_t thread_id;
static struct ownfd listener = OWNFD_NONE; /* the thread's, once that runs */
static bool ending;                        /* the name is removed, and stays so */
static sharers_answer_fn answer_request;
static sharers_idle_fn be_idle;

const struct sharing_process *sharers_self(void)
{
	return &self;
}

const char *sharers_job(void)
{
	return job;
}

bool sharers_is_self(const struct sharing_process *process)
{
	return __atomic_load_n(&started, __ATOMIC_ACQUIRE) && process->pid == self.pid &&
	       !memcmp(process->instance, self.instance, sizeof(self.instance));
}

/*
 * The thread that answers lives exactly as long as the image of the process: exec() ends it, and so does
 * an end. No number says as much: exec() keeps the PID and its start time, and a PID is used again.
 */
bool sharers_is_gone(const struct sharing_process *process)
{
	struct rundir_process p;
	int32_t thread;

	memcpy(&thread, process->instance, sizeof(thread));
	if (!tgkill(process->pid, thread, 0) || errno != ESRCH)
		return false;
	/* Threads end before the memory is given back, which takes the driver a while. */
	return !rundir_process(process->pid, &p) || p.ended || !p.exits;
}

void sharers_why(const struct sharing_process *process, int error, char *text, size_t size)
{
	if (error == -EAGAIN)
		snprintf(text, size, "does not answer");
	else
		snprintf(text, size, "cannot be reached: %s: %s/%d" RUNDIR_SHARING_SUFFIX,
			 error == -EPERM ? "another process listens" : error_text(-error),
			 home.path, process->pid);
}

/* The control message of one descriptor. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_answer(int to, const struct sharing_answer *answer, int fd)
{
	union control control = {.align = {.cmsg_len = CMSG_LEN(sizeof(fd)),
					   .cmsg_level = SOL_SOCKET,
					   .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {(void *)answer, sharing_answer_size(answer)};
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

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid != home.user)
		return false;
	*pid = peer.pid;
	return true;
}

/* False: @fd cannot be read for @ms. */
static bool can_be_read(struct patience *patience, int fd, double ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return patience_poll(patience, &p, 1, ms) > 0;
}

/* Descriptors that come with a request are dropped by the kernel, as there is no place for them. */
static void serve_client(int client)
{
	struct sharing_request request;
	struct patience patience = {0};
	struct sharing_answer answer;
	struct sharing_process from;
	unsigned char data[sizeof(request) + 1];
	ssize_t size;
	int fd = -1;

	if (!is_of_our_user(client, &from.pid) || !can_be_read(&patience, client, REQUEST_MS))
		return;
	size = recv(client, data, sizeof(data), MSG_DONTWAIT);
	if (size < 0 || sharing_request_parse(data, (size_t)size, &request))
		return;
	memcpy(from.instance, request.from, sizeof(from.instance));
	sharing_answer_begin(&answer);
	memcpy(answer.job, job, sizeof(job));
	/* A process of another PID namespace (0) cannot be known by its PID. */
	if (!from.pid || memcmp(request.to, self.instance, sizeof(self.instance)))
		answer.result = SHARING_STRANGER;
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

/*
 * An abstract address, for a process whose directory cannot be used: it has no file, and nobody can take it
 * before, as nobody knows the instance.
 */
static socklen_t address_without_name(const struct sharing_process *process,
				      struct sockaddr_un *addr)
{
	char *text = addr->sun_path + 1;
	int len = snprintf(text, sizeof(addr->sun_path) - 1, "cudaw-%d-", process->pid);

	addr->sun_family = AF_UNIX;
	addr->sun_path[0] = '\0';
	for (int i = 0; i < OBJECT_KEY; i++)
		len += sprintf(text + len, "%02x", process->instance[i]);
	return offsetof(struct sockaddr_un, sun_path) + 1 + len;
}

static int listen_without_name(void)
{
	struct sockaddr_un addr;
	socklen_t len = address_without_name(&self, &addr);
	int error, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (!bind(fd, (struct sockaddr *)&addr, len) && !listen(fd, BACKLOG))
		return fd;
	error = -errno;
	close(fd);
	return error;
}

/* The control thread has said why the directory cannot be used. */
static int listen_somewhere(void)
{
	int fd = rundir_listen(RUNDIR_SHARING, &home, true);

	return fd < 0 ? listen_without_name() : fd;
}

static int listen_again(void)
{
	return __atomic_load_n(&ending, __ATOMIC_ACQUIRE) ? -ECANCELED : listen_somewhere();
}

/* The program has closed our socket, as it closes all descriptors; or this is a process image. */
static void mend_listener(void)
{
	if (is_restored()) {
		own_start = rundir_start_time(getpid());
		ownfd_take_restored(&listener);
		rundir_see_home(&home);
	}
	if (ownfd_get(&listener) >= 0)
		return;
	ownfd_set(&listener, listen_again());
	if (ownfd_get(&listener) < 0)
		usleep(RETRY_MS * 1000);
}

/* Somebody may remove our socket from the directory, or the directory. */
static void mend_name(void)
{
	int fd = rundir_is_unnamed(RUNDIR_SHARING, &home) ? listen_again() : -1;

	if (fd < 0)
		return;
	ownfd_close(&listener);
	ownfd_set(&listener, fd);
}

static void *serve(void *unused)
{
	bool is_needed;

	threads_own_floats();
	thread_id = gettid();
	sem_post(&begun);
	/* Until start() has set all, or failed; another one may have succeeded since. */
	pthread_mutex_lock(&lock);
	is_needed = started && thread_id == gettid();
	pthread_mutex_unlock(&lock);
	while (is_needed) {
		struct pollfd p = {.fd = ownfd_get(&listener), .events = POLLIN};
		int client;

		if (p.fd < 0) {
			mend_listener();
			continue;
		}
		if (!poll(&p, 1, NAME_MS)) {
			mend_name();
			be_idle();
			continue;
		}
		if (ownfd_is_lost(&listener))
			continue;
		client = accept4(p.fd, NULL, NULL, SOCK_CLOEXEC);
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
	int error = threads_start("cudaw-sharing", serve);

	while (!error && sem_wait(&begun))
		;
	return error;
}

/* Last of all: until the program's own exit handlers have run it has all memory, and others count on it. */
__attribute__((destructor)) static void unlink_socket(void)
{
	if (!forks_is_ours() || !started)
		return;
	__atomic_store_n(&ending, true, __ATOMIC_RELEASE);
	rundir_unlink(RUNDIR_SHARING, &home);
}

/* The socket is the parent's, and so is the name. */
static void begin_anew_in_child(void)
{
	ownfd_close(&listener);
	started = false;
}
FORKS_CHILD(begin_anew_in_child);

/* 0, or a negative errno with the thread about to end, if there is one: see serve(). */
static int start(sharers_answer_fn answer, sharers_idle_fn idle)
{
	const char *why;
	int error;

	if (getrandom(self.instance, sizeof(self.instance), 0) != sizeof(self.instance))
		return -EIO;
	if (rundir_find_home(&home, &why))
		home.path[0] = '\0';
	rundir_job_id(job);
	self.pid = getpid();
	own_start = rundir_start_time(getpid());
	answer_request = answer;
	be_idle = idle;
	sem_init(&begun, 0, 0);
	error = start_thread();
	if (error) {
		pr_err_once("no thread to share memory with other processes: %s",
			    error_text(-error));
		return error;
	}
	memcpy(self.instance, &thread_id, sizeof(thread_id));
	error = listen_somewhere();
	if (error < 0) {
		pr_err_once("no socket to share memory with other processes: %s",
			    error_text(-error));
		return error;
	}
	ownfd_set(&listener, error);
	return 0;
}

int sharers_start(sharers_answer_fn answer, sharers_idle_fn idle)
{
	int error = 0;

	if (__atomic_load_n(&started, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&lock);
	if (!started) {
		error = start(answer, idle);
		__atomic_store_n(&started, !error, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

static int connect_by_name(const struct sharing_process *to)
{
	const char *why;
	int fd, dir = rundir_open(home.path, home.user, &why);

	if (dir < 0)
		return dir;
	fd = rundir_connect(RUNDIR_SHARING, dir, to->pid);
	close(dir);
	return fd;
}

static int connect_without_name(const struct sharing_process *to)
{
	struct sockaddr_un addr;
	socklen_t len = address_without_name(to, &addr);
	int error, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || !connect(fd, (struct sockaddr *)&addr, len))
		return fd < 0 ? -errno : fd;
	error = -errno;
	close(fd);
	return error;
}

/* @fd, if the process listens there. */
static int check_listener(int fd, const struct sharing_process *to)
{
	pid_t pid;

	if (fd < 0 || (is_of_our_user(fd, &pid) && pid == to->pid))
		return fd;
	close(fd);
	return -EPERM;
}

/* A connection to the process, or a negative errno: of its name, if it has none without either. */
static int connect_to(const struct sharing_process *to)
{
	int fd = check_listener(connect_by_name(to), to), other;

	if (fd >= 0)
		return fd;
	other = check_listener(connect_without_name(to), to);
	return other < 0 ? fd : other;
}

/* Receive an answer, and the descriptor that may come with it. Returns its bytes. */
static ssize_t receive(int from, struct sharing_answer *raw, int *fd)
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

int sharers_begin(const struct sharing_process *to, struct sharing_request *request)
{
	/* First: a child of a process that has ended may have its socket, without knowing it. */
	int with = sharers_is_gone(to) ? -ESRCH : connect_to(to);

	if (with < 0)
		return with;
	memcpy(request->to, to->instance, sizeof(request->to));
	memcpy(request->from, self.instance, sizeof(request->from));
	if (send(with, request, sizeof(*request), MSG_NOSIGNAL) == sizeof(*request))
		return with;
	close(with);
	return -EAGAIN;
}

static int hear(struct patience *patience, double asked_ms, int with, struct sharing_answer *answer,
		int *fd)
{
	struct sharing_answer raw;
	ssize_t size;
	int error;

	if (!can_be_read(patience, with, asked_ms + ANSWER_MS - patience_ms(patience)))
		return -EAGAIN;
	size = receive(with, &raw, fd);
	/* It ended, or lost its socket, without an answer: the next attempt tells. */
	if (size <= 0)
		return -EAGAIN;
	error = sharing_answer_parse(&raw, (size_t)size, answer);
	if (!error && answer->result == SHARING_STRANGER)
		error = -ESRCH;
	return error;
}

int sharers_end(struct patience *patience, double asked_ms, int with, struct sharing_answer *answer,
		int *fd)
{
	int error;

	*fd = -1;
	if (with < 0)
		return with;
	error = hear(patience, asked_ms, with, answer, fd);
	close(with);
	if (error && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return error;
}

int sharers_ask(struct patience *patience, const struct sharing_process *to,
		struct sharing_request *request, struct sharing_answer *answer, int *fd)
{
	double asked_ms = patience_ms(patience);

	return sharers_end(patience, asked_ms, sharers_begin(to, request), answer, fd);
}
