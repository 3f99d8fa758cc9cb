/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets as other processes may hand them to us: those of ours are read, all else is not. */
#include "checkpoint/sharing/messages.h"

#include "common/protocol/beacon.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TICKET 64

static const struct object_name name = {.pid = 77, .instance = {1, 2, 3}, .key = {4, 5, 6}};

START_TEST(a_ticket_is_read_by_whoever_has_it)
{
	struct object_name found;
	struct beacon beacon;
	int fd = ticket_make(&name, &beacon), other = dup(fd);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	for (int i = 0; i < 2; i++) {
		memset(&found, 0, sizeof(found));
		ck_assert_int_eq(ticket_read(i ? other : fd, &found), 0);
		ck_assert_int_eq(found.pid, 77);
		ck_assert_mem_eq(found.instance, name.instance, OBJECT_KEY);
		ck_assert_mem_eq(found.key, name.key, OBJECT_KEY);
	}
}
END_TEST

/* A beacon with @size bytes of a ticket, of which @at is changed. */
static int imitation(size_t size, int at)
{
	unsigned char data[2 * TICKET] = {0};
	struct beacon beacon;
	int real = ticket_make(&name, &beacon);

	ck_assert_int_eq(beacon_read(real, data, TICKET), TICKET);
	close(real);
	if (at >= 0)
		data[at] ^= 0x80;
	return beacon_make(data, size, &beacon);
}

START_TEST(imitations_are_refused)
{
	const struct {
		size_t size;
		int at, result;
	} cases[] = {
		{TICKET, 0, -ENOENT},   {TICKET, 8, -ENOTSUP},     {TICKET, 15, -EBADMSG},
		{TICKET, 63, -EBADMSG}, {TICKET - 1, -1, -ENOENT}, {TICKET + 1, -1, -ENOENT},
		{TICKET, -1, 0},        {TICKET, 20, 0},
	};
	struct object_name found;
	int fd;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fd = imitation(cases[i].size, cases[i].at);
		ck_assert_msg(ticket_read(fd, &found) == cases[i].result, "case %zu", i);
		close(fd);
	}
}
END_TEST

START_TEST(other_files_are_none)
{
	struct object_name found;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ticket_read(ends[0], &found), -ENOENT);
	ck_assert_int_eq(ticket_read(-1, &found), -ENOENT);
	ck_assert_int_eq(ticket_read(open("/dev/null", O_RDWR), &found), -ENOENT);
	ck_assert_int_eq(ticket_read(open("/dev/zero", O_RDWR), &found), -ENOENT);
	ck_assert_int_eq(ticket_read(open("/", O_RDONLY | O_DIRECTORY), &found), -ENOENT);
}
END_TEST

/* A handle of 4 MiB, with the allocation at 1 MiB. */
static struct sharing_handle handle_with(size_t at, uint64_t xor)
{
	struct sharing_handle handle = sharing_handle_make(&name);
	uint64_t changed;

	handle.size = 4UL << 20;
	handle.offset = 1UL << 20;
	memcpy(&changed, (char *)&handle + at, sizeof(changed));
	changed ^= xor;
	memcpy((char *)&handle + at, &changed, sizeof(changed));
	return handle;
}

START_TEST(handles_are_checked)
{
	const struct {
		size_t at;
		uint64_t xor ;
		int result;
	} cases[] = {
		{0, 0, 0},
		{0, 1, -ENOENT},           /* another magic */
		{8, 2, -ENOTSUP},          /* another version */
		{8, 1UL << 63, -EBADMSG},  /* a negative pid */
		{8, 77UL << 32, -EBADMSG}, /* none */
		{48, 4UL << 20, -EBADMSG}, /* no bytes */
		{48, 1, -EBADMSG},         /* no whole granules */
		{48, 1UL << 41, -EBADMSG}, /* too many */
		{56, 5UL << 20, -EBADMSG}, /* an offset behind them */
		{56, 1UL << 63, -EBADMSG},
		{40, 1, 0}, /* another key */
	};
	struct sharing_handle handle, found;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		handle = handle_with(cases[i].at, cases[i].xor);
		memset(&found, 0, sizeof(found));
		ck_assert_msg(sharing_handle_parse(&handle, &found) == cases[i].result, "case %zu",
			      i);
		ck_assert_int_eq(found.pid, cases[i].result ? 0 : 77);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tickets");
	TCase *tc = tcase_create("tickets");

	tcase_add_test(tc, a_ticket_is_read_by_whoever_has_it);
	tcase_add_test(tc, imitations_are_refused);
	tcase_add_test(tc, other_files_are_none);
	tcase_add_test(tc, handles_are_checked);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
