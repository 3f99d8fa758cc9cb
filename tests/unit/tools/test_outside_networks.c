/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections that are in the way of an image of processes, those that come to rest, and those that are closed. */
#include "tests/unit/tools/outside_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

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

int main(void)
{
	Suite *s = suite_create("outside_networks");
	TCase *tc = tcase_create("outside_networks");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_process_has_its_own_network);
	tcase_add_loop_test(tc, connections_have_both_ends_here, 0, CONNECTIONS);
	tcase_add_loop_test(tc, a_connection_that_is_closed_after_the_look_is_read_first, 0, 2);
	tcase_add_test(tc, connections_that_are_being_made);
	tcase_add_test(tc, connections_come_to_rest_and_are_repaired);
	tcase_add_test(tc, addresses_are_read_as_they_are_written);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
