/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the way of an image of processes, where the jobs of tests/jobs cannot have it. */
#include "tools/process/criu/outside.h"
#include "tools/process/criu/descriptors.h"

#include "tests/check_suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK 16384

static struct tree tree;
static char why[512];
static bool may_pass; /* what @why says */
static struct tcp_sockets ports;

/* Of this process. */
static void find_tree(void)
{
	struct process self;

	ck_assert(process_find(getpid(), &self));
	tree_find(&tree, &self, getuid());
}

static bool keep_first(void *arg, const char *text, bool passes)
{
	(void)arg;
	may_pass = passes;
	snprintf(why, sizeof(why), "%s", text);
	return false;
}

/*
 * Whether @text is why this process and its children cannot be carried. They have pipes to the
 * test's runner, which are looked at last.
 */
static bool is_refused_for(const char *text)
{
	find_tree();
	*why = '\0';
	outside_find(&tree, (pid_t[]){getpid()}, 1, &ports, NULL, keep_first, NULL);
	return strstr(why, text);
}

struct wanted {
	const char *text;
	bool found;
};

static bool find_wanted(void *arg, const char *text, bool passes)
{
	struct wanted *wanted = arg;

	(void)passes;
	wanted->found |= strstr(text, wanted->text) != NULL;
	return true;
}

/* Whether @text is among the reasons if @job is the process that uses CUDA. */
static bool is_a_reason(const char *text, pid_t job, struct tcp_sockets *closable)
{
	struct wanted wanted = {.text = text};

	find_tree();
	outside_find(&tree, &job, 1, &ports, closable, find_wanted, &wanted);
	return wanted.found;
}

static int wait_for_signal(void *arg)
{
	(void)arg;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (pause())
		;
	return 0;
}

/*
 * Children that share this process's memory: they are cheap. False where the system has not as
 * many.
 */
static bool have_children(size_t count)
{
	char *stacks = malloc(count * STACK);

	ck_assert_ptr_nonnull(stacks);
	for (size_t i = 0; i < count; i++)
		if (clone(wait_for_signal, stacks + (i + 1) * STACK, CLONE_VM | SIGCHLD, NULL) < 0)
			return false;
	return true;
}

static void end_children(void)
{
	for (size_t i = 1; i < tree.n; i++)
		kill(tree.pids[i], SIGKILL);
}

START_TEST(a_tree_that_is_too_large_is_not_cut_in_silence)
{
	if (!have_children(TREE_MAX - 1)) {
		printf("# there cannot be as many processes\n");
	} else {
		ck_assert(!is_refused_for("processes"));
		ck_assert_uint_eq(tree.n, TREE_MAX);
		ck_assert(have_children(1));
		ck_assert_msg(is_refused_for("it has more than 4096 processes"), "%s", why);
	}
	find_tree();
	end_children();
	find_tree();
	end_children();
}
END_TEST

/* A child with an id below that of this process, as there is when ids begin anew. It takes root. */
static pid_t fork_below(void)
{
	pid_t id = getpid(), child;

	do {
		struct clone_args args = {
			.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&id, .set_tid_size = 1};

		id--;
		child = syscall(SYS_clone3, &args, sizeof(args));
	} while (child < 0 && errno == EEXIST);
	return child;
}

START_TEST(children_of_any_id_are_found)
{
	pid_t child, grandchild;
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	child = fork();
	if (!child) {
		grandchild = fork_below();
		if (grandchild)
			ck_assert_int_eq(write(fds[1], &grandchild, sizeof(pid_t)), sizeof(pid_t));
		wait_for_signal(NULL);
	}
	ck_assert_int_eq(read(fds[0], &grandchild, sizeof(pid_t)), sizeof(pid_t));
	find_tree();
	ck_assert(tree_has(&tree, child));
	if (grandchild < 0)
		printf("# no process can have a given id here (it takes root)\n");
	else
		ck_assert(grandchild < child && tree_has(&tree, grandchild));
	end_children();
}
END_TEST

static size_t address_space(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%zu", &pages), 1);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

/* As many descriptors as need more memory than there is. */
START_TEST(too_little_memory_is_said)
{
	struct rlimit files, memory = {.rlim_max = RLIM_INFINITY};
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (int i = 0; i < 3000; i++)
		if (dup(fds[0]) < 0) {
			printf("# a process cannot have as many descriptors\n");
			return;
		}
	ck_assert(!is_refused_for("memory"));
	memory.rlim_cur = address_space() + 150 * 1024;
	setrlimit(RLIMIT_AS, &memory);
	ck_assert_msg(is_refused_for("out of memory or descriptors for the list"), "%s", why);
}
END_TEST

START_TEST(too_few_descriptors_are_said)
{
	struct descriptors one = {0};
	struct rlimit limit, less;
	int next = dup(0);

	ck_assert_int_ge(next, 0);
	close(next);
	find_tree();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	less = limit;
	less.rlim_cur = next;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &less), 0);
	outside_find(&tree, NULL, 0, &ports, NULL, keep_first, NULL);
	ck_assert_str_eq(why, "out of memory or descriptors for the list of its open files");
	descriptors_add_process(&one, getpid());
	ck_assert(one.short_of_memory);
	ck_assert_int_eq(tcp_rest(&tree, &ports), -ENOMEM);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(tcp_rest(&tree, &ports), 0);
}
END_TEST

/* In a network of its own; false where it cannot have one. */
static bool leave_network(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd;

	if (unshare(CLONE_NEWNET))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	return fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &lo) && !close(fd);
}

/* Both ends of a connection of this process to itself; the second is -1 where it is not to be @accepted. */
static bool connect_here(int ends[2], bool accepted)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(at);
	int server = socket(AF_INET, SOCK_STREAM, 0);

	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(server, (void *)&at, size) || listen(server, 1) ||
	    getsockname(server, (void *)&at, &size) || connect(ends[0], (void *)&at, size))
		return false;
	ends[1] = accepted ? accept(server, NULL, NULL) : -1;
	return !accepted || (ends[1] >= 0 && !close(server));
}

/* With a connection that may be closed. */
static bool are_networks_in_the_way_of_closing(void)
{
	struct tcp_sockets closable = {0};
	bool found;
	int ends[2];
	char end;

	ck_assert(connect_here(ends, true));
	close(ends[1]);
	ck_assert_int_eq(recv(ends[0], &end, 1, 0), 0);
	found = is_a_reason("its processes are in 2 networks", getpid(), &closable);
	close(ends[0]);
	free(closable.all);
	return found;
}

START_TEST(every_process_has_its_own_network)
{
	int fds[2];
	char there = 'n';
	int ends[2];

	ck_assert_int_eq(pipe(fds), 0);
	if (!fork()) {
		if (leave_network())
			there = connect_here(ends, false) ? 'y' : '?';
		ck_assert_int_eq(write(fds[1], &there, 1), 1);
		wait_for_signal(NULL);
	}
	ck_assert_int_eq(read(fds[0], &there, 1), 1);
	ck_assert_int_ne(there, '?');
	if (there == 'n')
		printf("# no network can be made here (it takes root)\n");
	else
		ck_assert_msg(is_refused_for("has a TCP connection from 127.0.0.1:"), "%s", why);
	ck_assert_int_eq(are_networks_in_the_way_of_closing(), there == 'y');
	find_tree();
	end_children();
}
END_TEST

/* What a case of connections does with the ends of one. */
enum connection {
	BOTH_ENDS,
	HALF_CLOSED,
	NOT_ACCEPTED,
	CLOSED_THERE,
	CLOSED_UNREAD,
	CLOSED_FULL, /* with so much unread that the end of it has not arrived */
	SHARED,
	SHARED_OUTSIDE,
	CLOSED_READ,
	OUTSIDE,
	CONNECTIONS
};

/*
 * What a snapshot may close: a connection to another process; and one that was closed at the other end, perhaps by a
 * process of the job, if all of it is read. Another process that has the id is left alone.
 */
static void look_at_closable(enum connection is, int end)
{
	static struct tcp_sockets closable;
	size_t closed = 0, n = is >= CLOSED_READ;

	*why = '\0';
	outside_find(&tree, (pid_t[]){getpid()}, 1, &ports, &closable, keep_first, NULL);
	ck_assert_uint_eq(closable.n, n);
	ck_assert_int_eq(may_pass, is == NOT_ACCEPTED || (is >= CLOSED_THERE && is <= CLOSED_FULL));
	tree.starts[0]++;
	ck_assert_int_eq(tcp_end(&tree, &closable, &closed), 0);
	ck_assert_uint_eq(closed, 0);
	tree.starts[0]--;
	ck_assert_int_eq(tcp_end(&tree, &closable, &closed), 0);
	ck_assert_uint_eq(closed, n);
	ck_assert_int_eq(!strstr(why, "TCP"), is <= HALF_CLOSED || n);
	ck_assert_msg(!strstr(why, "--close-outside"), "%s", why);
	ck_assert_int_eq(is_refused_for("TCP"), is >= NOT_ACCEPTED && !n);
	ck_assert_int_eq(send(end, "", 1, MSG_NOSIGNAL), n ? -1 : 1);
}

static void close_unread(int end, size_t bytes)
{
	static char data[1 << 20];

	if (bytes)
		ck_assert_int_eq(send(end, data, bytes, 0), bytes);
	else
		while (send(end, data, sizeof(data), MSG_DONTWAIT) > 0)
			;
	close(end);
}

/* A process with another parent has the second end, and if @both, the first one, too. */
static void share(const int ends[2], bool both)
{
	if (!fork()) {
		if (!both)
			close(ends[0]);
		if (!fork())
			while (pause())
				;
		_exit(0);
	}
	wait(NULL);
}

/* In the process of a case; @text is the reason, "" for none. */
static void look_at_connection(enum connection is, const char *text)
{
	int ends[2];
	char end;

	ck_assert(connect_here(ends, is != NOT_ACCEPTED));
	if (is == SHARED || is == SHARED_OUTSIDE || is == OUTSIDE)
		share(ends, is != OUTSIDE);
	if (is == CLOSED_UNREAD || is == CLOSED_FULL)
		close_unread(ends[1], is == CLOSED_UNREAD);
	if (is == CLOSED_THERE || is == SHARED_OUTSIDE || is >= CLOSED_READ)
		close(ends[1]);
	if (is == CLOSED_READ)
		ck_assert_int_eq(recv(ends[0], &end, 1, 0), 0);
	if (is == HALF_CLOSED)
		ck_assert_int_eq(shutdown(ends[1], SHUT_WR), 0);
	if (*text)
		ck_assert_msg(is_refused_for(text), "%d: %s", is, why);
	else
		ck_assert_msg(!is_refused_for("TCP"), "%d: %s", is, why);
	ck_assert_int_eq(may_pass, is == NOT_ACCEPTED);
	ck_assert(is == NOT_ACCEPTED || tcp_are_connected(&ports));
	look_at_closable(is, ends[0]);
	/* Its group: the process that has no parent any more, too. */
	kill(0, SIGKILL);
}

START_TEST(connections_have_both_ends_here)
{
	static const char *const texts[] = {
		[BOTH_ENDS] = "",
		[HALF_CLOSED] = "",
		[NOT_ACCEPTED] = "that it has not accepted yet (try again)",
		[CLOSED_THERE] = "that the other end has closed",
		[CLOSED_UNREAD] = "that the other end has closed",
		[CLOSED_FULL] = "that the other end has closed",
		[SHARED] = " has open, too, which is not part of the job",
		[SHARED_OUTSIDE] = " has open, too, which is not part of the job",
		[CLOSED_READ] = "that the other end has closed",
		[OUTSIDE] =
			"which is not part of the job: end it first, or close it (--close-outside)",
	};
	int status;

	if (!fork()) {
		ck_assert_int_eq(setpgid(0, 0), 0);
		look_at_connection(_i, texts[_i]);
	}
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}
END_TEST

/*
 * In a process that has the connection @fd to its parent, and alone once it reads @turns. The parent ends it once it
 * reads @looked, and then @turns.
 */
static void look_and_close(int fd, int looked, int turns)
{
	struct tcp_sockets closable = {0};
	struct pollfd end = {.fd = fd, .events = POLLRDHUP};
	size_t closed = 0;
	char byte;

	ck_assert_int_eq(read(turns, &byte, 1), 1);
	find_tree();
	outside_find(&tree, (pid_t[]){getpid()}, 1, &ports, &closable, keep_first, NULL);
	ck_assert_uint_eq(closable.n, 1);
	close(looked);
	ck_assert_int_eq(read(turns, &byte, 1), 0);
	ck_assert_int_eq(poll(&end, 1, -1), 1);
	ck_assert_int_eq(tcp_end(&tree, &closable, &closed), -EAGAIN);
	ck_assert_uint_eq(closed, 0);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 1);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
	ck_assert_int_eq(tcp_end(&tree, &closable, &closed), 0);
	ck_assert_uint_eq(closed, 1);
	free(closable.all);
}

/* Whoever has closed it, perhaps half of it before the look, would not hear that it is not read. */
START_TEST(a_connection_that_is_closed_after_the_look_is_read_first)
{
	int ends[2], looked[2], turns[2], status;
	bool half_closed = _i;
	char byte;

	ck_assert(connect_here(ends, true));
	ck_assert_int_eq(pipe(looked), 0);
	ck_assert_int_eq(pipe(turns), 0);
	if (half_closed) {
		ck_assert_int_eq(send(ends[1], "x", 1, 0), 1);
		ck_assert_int_eq(shutdown(ends[1], SHUT_WR), 0);
	}
	if (!fork()) {
		close(ends[1]);
		close(turns[1]);
		look_and_close(ends[0], looked[1], turns[0]);
		_exit(0);
	}
	close(ends[0]);
	close(looked[1]);
	ck_assert_int_eq(write(turns[1], "x", 1), 1);
	ck_assert_int_eq(read(looked[0], &byte, 1), 0);
	if (!half_closed)
		ck_assert_int_eq(send(ends[1], "x", 1, 0), 1);
	close(ends[1]);
	close(turns[1]);
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A pipe that has a path: in the way of a process as soon as it has not both ends. */
START_TEST(pipes_with_a_path_have_both_ends_here)
{
	char path[] = "/tmp/cudaw-test-XXXXXX", text[64];
	int reads, writes, status;

	ck_assert_int_eq(close(mkstemp(path)), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	reads = open(path, O_RDONLY | O_NONBLOCK);
	writes = open(path, O_WRONLY);
	unlink(path);
	snprintf(text, sizeof(text), "descriptor %d of %d ", writes, getpid());
	ck_assert(!is_a_reason(text, getpid(), NULL));
	if (!fork()) {
		close(_i ? writes : reads);
		snprintf(text, sizeof(text), "descriptor %d of %d ", _i ? reads : writes, getpid());
		ck_assert(is_a_reason(text, getpid(), NULL));
		_exit(0);
	}
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Not one that has no name, nor one that is called so; nor one in memory that is mapped: memory_files.h has it. */
START_TEST(files_that_have_another_name_are_found)
{
	char path[64], other[96], deleted[96];
	static const char text[] = " is a file that has lost its name, and has another one: ";
	static const char mapped[] = " maps a file that has lost its name, and has another one: ";
	int fd;

	snprintf(path, sizeof(path), "%s/test_outside-%d", _i ? "/dev/shm" : "/tmp", getpid());
	snprintf(other, sizeof(other), "%s-other", path);
	snprintf(deleted, sizeof(deleted), "%s (deleted)", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(link(path, other), 0);
	ck_assert(!is_a_reason(text, getpid(), NULL));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert(is_a_reason(text, getpid(), NULL));
	ck_assert(is_a_reason(deleted, getpid(), NULL));
	ck_assert_ptr_ne(mmap(NULL, 1, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(is_a_reason(text, getpid(), NULL), !_i);
	ck_assert_int_eq(is_a_reason(mapped, getpid(), NULL), !_i);
	ck_assert_int_eq(rename(other, deleted), 0);
	ck_assert(!is_a_reason(text, getpid(), NULL) && !is_a_reason(mapped, getpid(), NULL));
	ck_assert_int_eq(unlink(deleted), 0);
	ck_assert(!is_a_reason(text, getpid(), NULL) && !is_a_reason(mapped, getpid(), NULL));
}
END_TEST

/* Whether the socket to the parent is in the way if @job is the process that uses CUDA; also if TCP may be closed. */
static bool is_socket_in_the_way(pid_t job)
{
	struct tcp_sockets closable = {0};
	char text[160];
	bool is;

	snprintf(
		text, sizeof(text),
		"is a Unix socket to %d (cudawd), which is not part of the job: end that process, or let the "
		"program close the socket",
		getppid());
	is = is_a_reason(text, job, NULL);
	ck_assert_int_eq(is_a_reason(text, job, &closable), is);
	ck_assert_uint_eq(closable.n, 0);
	return is;
}

START_TEST(a_connection_to_cudawd_is_in_the_way_except_the_jobs_own)
{
	int ends[2], status;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	ck_assert_int_eq(prctl(PR_SET_NAME, "cudawd"), 0);
	if (!fork()) {
		close(ends[1]);
		ck_assert(!is_socket_in_the_way(getpid()));
		ck_assert(is_socket_in_the_way(getppid()));
		_exit(0);
	}
	close(ends[0]);
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* The kernel answers a connection only while there is room for it in the queue of the socket that listens. */
START_TEST(connections_that_are_being_made)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(at);
	int server = socket(AF_INET, SOCK_STREAM, 0), fd;

	ck_assert_int_eq(bind(server, (void *)&at, size), 0);
	ck_assert_int_eq(listen(server, 0), 0);
	ck_assert_int_eq(getsockname(server, (void *)&at, &size), 0);
	do {
		struct pollfd made = {.events = POLLOUT};

		ck_assert(!is_a_reason("is connecting to 127.0.0.1:", getpid(), NULL));
		fd = made.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fd, (void *)&at, size);
		if (poll(&made, 1, 0) == 0)
			break;
	} while (fd < 64);
	ck_assert(is_a_reason("is connecting to 127.0.0.1:", getpid(), NULL));
}
END_TEST

/* A connection that nobody has accepted yet: the socket that listens at an abstract @name, and its other end. */
static void connect_unaccepted(const char *name, int ends[2])
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	socklen_t size = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);

	strcpy(at.sun_path + 1, name);
	for (int i = 0; i < 2; i++)
		ends[i] = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(ends[0], (void *)&at, size), 0);
	ck_assert_int_eq(listen(ends[0], 1), 0);
	ck_assert_int_eq(connect(ends[1], (void *)&at, size), 0);
}

/* CRIU takes the first one, refuses the next two after a pause, and loses the others. */
enum unaccepted {
	INSIDE,
	WITH_DATA,
	CLOSED,
	FROM_OUTSIDE,
	REQUEST /* for cudaw, which its sender makes again */
};

START_TEST(connections_by_unix_sockets_are_accepted)
{
	int ends[2], status;
	char name[64];

	if (!fork()) {
		ck_assert_int_eq(setpgid(0, 0), 0);
		snprintf(name, sizeof(name), "test_outside-%d/%d.sock", getpid(),
			 _i == REQUEST ? getpid() : 0);
		connect_unaccepted(name, ends);
		if (_i == WITH_DATA)
			ck_assert_int_eq(send(ends[1], "x", 1, 0), 1);
		if (_i >= FROM_OUTSIDE)
			share(ends, false);
		if (_i >= CLOSED)
			close(ends[1]);
		ck_assert_int_eq(
			is_a_reason("by a Unix socket that it has not accepted yet (try again)",
				    getpid(), NULL),
			_i != INSIDE && _i != REQUEST);
		kill(0, SIGKILL);
	}
	ck_assert_int_gt(wait(&status), 0);
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}
END_TEST

/* This thread; it takes root. */
static void let_administer_networks(bool may)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1U << CAP_NET_ADMIN);
	data[0].effective |= (unsigned int)may << CAP_NET_ADMIN;
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
}

/*
 * What waits for more of the same (TCP_CORK) is sent first; data that the other end has no room for stays. In repair
 * mode nothing can be sent, and afterwards all is as before.
 */
START_TEST(connections_come_to_rest_and_are_repaired)
{
	int ends[2], on = 1, unread = 0;
	static char data[1 << 20];
	bool may;

	ck_assert(connect_here(ends, true));
	find_tree();
	ck_assert_int_eq(setsockopt(ends[0], IPPROTO_TCP, TCP_CORK, &on, sizeof(on)), 0);
	ck_assert_int_eq(send(ends[0], "corked", 6, 0), 6);
	ck_assert(!is_refused_for("TCP"));
	ck_assert_int_eq(tcp_rest(&tree, &ports), 0);
	ck_assert_int_eq(ioctl(ends[1], FIONREAD, &unread), 0);
	ck_assert_int_eq(unread, 6);
	while (send(ends[0], data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(tcp_rest(&tree, &(struct tcp_sockets){0}), 0);
	ck_assert_int_eq(tcp_rest(&tree, &ports), -EAGAIN);
	may = tcp_repair(&tree, true) == 0;
	if (may) {
		ck_assert_int_lt(send(ends[1], "x", 1, MSG_DONTWAIT), 0);
		/* Who may not switch it off says so, and whose number is another's by now is left alone. */
		let_administer_networks(false);
		ck_assert_int_eq(tcp_repair(&tree, false), -EPERM);
		let_administer_networks(true);
		tree.starts[0]++;
		ck_assert_int_eq(tcp_repair(&tree, false), 0);
		tree.starts[0]--;
		ck_assert_int_lt(send(ends[1], "x", 1, MSG_DONTWAIT), 0);
	} else {
		printf("# no connection can be repaired here (it takes root)\n");
	}
	ck_assert_int_eq(tcp_repair(&tree, false), 0);
	ck_assert_int_eq(send(ends[1], "x", 1, 0), 1);
	ck_assert_int_eq(recv(ends[0], data, sizeof(data), 0) > 0, 1);
}
END_TEST

START_TEST(addresses_are_read_as_they_are_written)
{
	static const char *const good[] = {"127.0.0.1:80", "[::1]:65535", "0.0.0.0:1",
					   "[fe80::1]:22"};
	static const char *const bad[] = {
		"",         "127.0.0.1",         "127.0.0.1:80 ", "[::1:80", "localhost:80",
		"1.2.3:80", "[::ffff:1.2.3.4:80"};
	char text[TCP_TEXT_SIZE];
	struct tcp_end end;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert(tcp_parse(good[i], &end));
		ck_assert_str_eq(tcp_text(&end, text), good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!tcp_parse(bad[i], &end), "%s", bad[i]);
}
END_TEST

static int open_ring(void)
{
	char ring[120] = {0};

	return syscall(SYS_io_uring_setup, 4, ring);
}

static int open_faults(void)
{
	return syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
}

static int open_counter(void)
{
	struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE,
					     .size = sizeof(attributes),
					     .config = PERF_COUNT_SW_TASK_CLOCK,
					     .exclude_kernel = 1};

	return syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
}

static int open_queue(void)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "/test_outside-%d", getpid());
	fd = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
	mq_unlink(name);
	return fd;
}

/* The kernel acknowledges a message that it has nothing to do for. */
static int open_netlink(void)
{
	const struct nlmsghdr nothing = {.nlmsg_len = sizeof(nothing),
					 .nlmsg_type = NLMSG_NOOP,
					 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK};
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ck_assert_int_eq(send(fd, &nothing, sizeof(nothing), 0), sizeof(nothing));
	return fd;
}

static int open_process(void)
{
	return syscall(SYS_pidfd_open, getppid(), 0);
}

/* What CRIU says itself, but only after a pause, and with numbers. */
static const struct {
	int (*open)(void);
	const char *text;
} not_taken[] = {
	{open_ring, "is anon_inode:[io_uring], which CRIU does not take"},
	{open_faults, "is anon_inode:[userfaultfd], which CRIU does not take"},
	{open_counter, "is anon_inode:[perf_event], which CRIU does not take"},
	{open_queue, "is a POSIX message queue, which CRIU does not take"},
	{open_netlink, "is a netlink socket with messages that it has not read (try again)"},
	{open_process, "is a pidfd of "},
};

START_TEST(what_criu_does_not_take)
{
	int own = syscall(SYS_pidfd_open, getpid(), 0), quiet = socket(AF_NETLINK, SOCK_RAW, 0);
	int fd = not_taken[_i].open();

	if (fd < 0) {
		printf("# %m: nothing here that %s\n", not_taken[_i].text);
	} else {
		ck_assert(is_a_reason(not_taken[_i].text, getpid(), NULL));
		close(fd);
	}
	ck_assert(!is_a_reason(not_taken[_i].text, getpid(), NULL));
	close(own);
	close(quiet);
}
END_TEST

START_TEST(memory_that_criu_does_not_take)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600);

	ck_assert_ptr_ne(shmat(id, NULL, 0), (void *)-1);
	ck_assert_int_eq(shmctl(id, IPC_RMID, NULL), 0);
	ck_assert_msg(is_refused_for("has System V shared memory"), "%s", why);
	ck_assert(!is_a_reason("has used the System V shared memory", getpid(), NULL));
}
END_TEST

static int make_memory(void)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600);

	ck_assert_int_eq(shmdt(shmat(id, NULL, 0)), 0);
	return id;
}

static int make_message_queue(void)
{
	const struct {
		long type;
		char text;
	} message = {1, 'x'};
	int id = msgget(IPC_PRIVATE, 0600);

	ck_assert_int_eq(msgsnd(id, &message, sizeof(message.text), 0), 0);
	return id;
}

static int make_semaphores(void)
{
	struct sembuf add = {.sem_num = 1, .sem_op = 1};
	int id = semget(IPC_PRIVATE, 2, 0600);

	ck_assert_int_eq(semop(id, &add, 1), 0);
	return id;
}

static int remove_memory(int id)
{
	return shmctl(id, IPC_RMID, NULL);
}

static int remove_message_queue(int id)
{
	return msgctl(id, IPC_RMID, NULL);
}

static int remove_semaphores(int id)
{
	return semctl(id, 0, IPC_RMID);
}

static const struct {
	int (*make)(void);
	int (*remove)(int id);
	const char *text;
} unattached[] = {
	{make_memory, remove_memory, "shared memory %d (shmget)"},
	{make_message_queue, remove_message_queue, "message queue %d (msgget)"},
	{make_semaphores, remove_semaphores, "semaphores %d (semget)"},
};

/* Whether it was the last process to use it. */
START_TEST(what_is_not_attached_is_found)
{
	int id = unattached[_i].make(), status;
	bool found, of_another;
	char text[64];

	snprintf(text, sizeof(text), unattached[_i].text, id);
	found = is_a_reason(text, getpid(), NULL);
	if (!fork())
		_exit(is_a_reason(text, getpid(), NULL));
	ck_assert_int_gt(wait(&status), 0);
	of_another = status;
	ck_assert_int_eq(unattached[_i].remove(id), 0);
	ck_assert(found && !of_another);
	ck_assert(!is_a_reason(text, getpid(), NULL));
}
END_TEST

/*
 * In a process that leads a session and has nothing open: whether a process in its session is refused
 * once the parent of that has ended. An exit status.
 */
static int refuses_an_orphan(void)
{
	pid_t between;
	int refused;

	setsid();
	close_range(0, ~0U, 0);
	if (!is_refused_for("") || *why)
		return 2;
	between = fork();
	if (!between) {
		if (!fork())
			while (pause())
				;
		_exit(0);
	}
	waitpid(between, NULL, 0);
	refused = is_refused_for("which the job has, but is not below its first process");
	signal(SIGUSR1, SIG_IGN);
	kill(0, SIGUSR1); /* the orphan, which is in its group */
	return !refused;
}

START_TEST(processes_of_the_session_are_below_it)
{
	int status;
	pid_t leader = fork();

	if (!leader)
		_exit(refuses_an_orphan());
	ck_assert_int_eq(waitpid(leader, &status, 0), leader);
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* Have a child, and leave its session. */
static void leave_child_behind(void)
{
	if (!fork())
		wait_for_signal(NULL);
	setsid();
}

/* Adopt the child of a process that has begun a session and has ended. */
static void adopt(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!fork()) {
		setsid();
		if (!fork())
			while (pause())
				;
		_exit(0);
	}
	wait(NULL);
}

/* In a process whose child does that, and then it itself: only a child of a child is in the way. An exit status. */
static int refuses_what_has(void (*happened)(void))
{
	static const char text[] = ": a restore could not put it there";
	char session[80];
	int fds[2], status;
	char byte;

	snprintf(session, sizeof(session), "is in the session %d, which the job has", getsid(0));

	ck_assert_int_eq(pipe(fds), 0);
	if (!fork()) {
		happened();
		ck_assert_int_eq(write(fds[1], "x", 1), 1);
		wait_for_signal(NULL);
	}
	ck_assert_int_eq(read(fds[0], &byte, 1), 1);
	status = !is_a_reason(text, getpid(), NULL);
	status |= is_a_reason(session, getpid(), NULL) ? 2 : 0;
	end_children();
	wait(NULL);
	happened();
	status |= is_a_reason(text, getpid(), NULL) ? 4 : 0;
	/* What it has left, others are in, too. */
	status |= is_a_reason(session, getpid(), NULL) != (happened == leave_child_behind) ? 8 : 0;
	end_children();
	return status;
}

START_TEST(processes_are_in_sessions_that_can_be_made)
{
	int status;
	pid_t child = fork();

	if (!child)
		_exit(refuses_what_has(_i ? adopt : leave_child_behind));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

static int timer(time_t first_s, time_t period_s)
{
	const struct itimerspec when = {.it_value = {.tv_sec = first_s, .tv_nsec = !first_s},
					.it_interval.tv_sec = period_s};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(timerfd_settime(fd, 0, &when, NULL), 0);
	return fd;
}

START_TEST(periodic_timers_are_not_lost)
{
	static const struct {
		time_t first_s, period_s;
		bool refused;
	} timers[] = {{3600, 3600, false},
		      {0, 0, false},
		      {2, 0, false},
		      {0, 3600, true},
		      {2, 3600, true}};

	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
		int fd = timer(timers[i].first_s, timers[i].period_s);
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		/* An expiry that nobody reads. */
		if (!timers[i].first_s)
			ck_assert_int_eq(poll(&ready, 1, -1), 1);
		ck_assert_msg(is_refused_for("is a periodic timer") == timers[i].refused,
			      "timer %zu: %s", i, why);
		close(fd);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outside");
	TCase *tc = tcase_create("outside");

	tcase_set_timeout(tc, 60);
	/* Sanitizers have memory of their own, and no idea of processes that share it. */
	if (!getenv("SANITIZE")) {
		tcase_add_test(tc, a_tree_that_is_too_large_is_not_cut_in_silence);
		tcase_add_test(tc, too_little_memory_is_said);
	}
	tcase_add_test(tc, too_few_descriptors_are_said);
	tcase_add_test(tc, children_of_any_id_are_found);
	tcase_add_test(tc, every_process_has_its_own_network);
	tcase_add_loop_test(tc, connections_have_both_ends_here, 0, CONNECTIONS);
	tcase_add_loop_test(tc, a_connection_that_is_closed_after_the_look_is_read_first, 0, 2);
	tcase_add_test(tc, connections_that_are_being_made);
	tcase_add_loop_test(tc, connections_by_unix_sockets_are_accepted, 0, REQUEST + 1);
	tcase_add_loop_test(tc, pipes_with_a_path_have_both_ends_here, 0, 2);
	tcase_add_loop_test(tc, files_that_have_another_name_are_found, 0, 2);
	tcase_add_test(tc, a_connection_to_cudawd_is_in_the_way_except_the_jobs_own);
	tcase_add_test(tc, connections_come_to_rest_and_are_repaired);
	tcase_add_test(tc, addresses_are_read_as_they_are_written);
	tcase_add_loop_test(tc, what_criu_does_not_take, 0,
			    sizeof(not_taken) / sizeof(not_taken[0]));
	tcase_add_test(tc, memory_that_criu_does_not_take);
	tcase_add_loop_test(tc, what_is_not_attached_is_found, 0,
			    sizeof(unattached) / sizeof(unattached[0]));
	tcase_add_test(tc, processes_of_the_session_are_below_it);
	tcase_add_loop_test(tc, processes_are_in_sessions_that_can_be_made, 0, 2);
	tcase_add_test(tc, periodic_timers_are_not_lost);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
