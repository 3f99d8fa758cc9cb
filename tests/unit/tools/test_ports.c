/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports of a snapshot are free on this machine. */
#include "tools/process/criu/ports.h"

#include "tests/check_suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket that listens at 0.0.0.0, and its port. */
static int listen_by_4(unsigned int *port)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	socklen_t size = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&in, &size), 0);
	*port = ntohs(in.sin_port);
	return fd;
}

/* Whether a job can have it that listens at @address, and, unless @other is NULL, at that. 0 or a negative errno. */
static int check(const char *address, const char *other, unsigned int port)
{
	struct tcp_socket all[2] = {{.state = TCP_IS_LISTENING}, {.state = TCP_IS_LISTENING}};
	const struct tcp_sockets ports = {.all = all, .n = other ? 2 : 1};
	struct snapshot_error error;
	char text[TCP_TEXT_SIZE];

	snprintf(text, sizeof(text), "%s:%u", address, port);
	ck_assert(tcp_parse(text, &all[0].local));
	snprintf(text, sizeof(text), "%s:%u", other ? other : address, port);
	ck_assert(tcp_parse(text, &all[1].local));
	return ports_check(&ports, false, &error);
}

/* A socket of IPv6 may serve IPv4, too, unless the job has another one for that. */
START_TEST(ports_of_both_versions)
{
	unsigned int port;
	int fd = listen_by_4(&port);

	ck_assert_int_eq(check("0.0.0.0", NULL, port), -EADDRINUSE);
	ck_assert_int_eq(check("[::]", NULL, port), -EADDRINUSE);
	ck_assert_int_eq(check("[::1]", NULL, port), 0);
	ck_assert_int_eq(check("[::]", "0.0.0.0", port), -EADDRINUSE);
	close(fd);
	ck_assert_int_eq(check("[::]", NULL, port), 0);
	ck_assert_int_eq(check("[::]", "0.0.0.0", port), 0);
	ck_assert_int_eq(check("[2001:db8::1]", NULL, port), -EADDRNOTAVAIL);
	/* Of which interface it is, the list does not say. */
	ck_assert_int_eq(check("[fe80::1]", NULL, port), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tools_ports");
	TCase *tc = tcase_create("tools_ports");

	tcase_add_test(tc, ports_of_both_versions);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
