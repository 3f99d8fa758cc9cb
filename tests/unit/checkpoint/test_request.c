/* SPDX-License-Identifier: Apache-2.0 */
/* What the lines to a job ask. */
#include "checkpoint/control/request.h"

#include "tests/check_suite.h"

#include <limits.h>
#include <string.h>

#define UUID  "GPU-63756461-772d-7369-6d75-6c6174656400"
#define OTHER "GPU-63756461-772d-7369-6d75-6c6174656401"

static struct request r;

static const struct valid {
	const char *text;
	int id;
	bool hold;
	int timeout_ms;
	enum release_choice release;
	size_t bytes;
} valid[] = {
	{"status", .id = REQUEST_STATUS},
	{"trim", .id = REQUEST_TRIM},
	{"pause", .id = REQUEST_PAUSE, .timeout_ms = CONTROL_PAUSE_TIMEOUT_MS},
	{"pause 5", .id = REQUEST_PAUSE, .timeout_ms = 5},
	{"pause all", .id = REQUEST_PAUSE, .timeout_ms = CONTROL_PAUSE_TIMEOUT_MS,
	 .release = RELEASE_ALL},
	{"pause 0 memory", .id = REQUEST_PAUSE, .release = RELEASE_MEMORY},
	{"hold 2147483647 all", .id = REQUEST_HOLD, .hold = true, .timeout_ms = INT_MAX,
	 .release = RELEASE_ALL},
	{"hold 5 snapshot", .id = REQUEST_HOLD, .hold = true, .timeout_ms = 5,
	 .release = RELEASE_ALL},
	{"resume", .id = REQUEST_RESUME},
	{"resume 7", .id = REQUEST_RESUME, .timeout_ms = 7},
	{"regain 7", .id = REQUEST_REGAIN, .hold = true, .timeout_ms = 7},
	{"yield 0", .id = REQUEST_YIELD, .timeout_ms = CONTROL_PAUSE_TIMEOUT_MS},
	{"yield 4611686018427387904", .id = REQUEST_YIELD, .timeout_ms = CONTROL_PAUSE_TIMEOUT_MS,
	 .bytes = 1UL << 62},
	{"yield 9 8", .id = REQUEST_YIELD, .timeout_ms = 8, .bytes = 9},
	{"yield 9 hold", .id = REQUEST_YIELD, .hold = true, .timeout_ms = CONTROL_PAUSE_TIMEOUT_MS,
	 .bytes = 9},
	{"yield 9 8 hold", .id = REQUEST_YIELD, .hold = true, .timeout_ms = 8, .bytes = 9},
	{"room 9", .id = REQUEST_ROOM, .bytes = 9},
	{"room 9 hold", .id = REQUEST_ROOM, .hold = true, .bytes = 9},
	{"commit", .id = ORDER_COMMIT},
	{"abort", .id = ORDER_ABORT},
	{"beside 12", .id = ORDER_BESIDE},
	{"watch", .id = TURN_WATCH},
	{"try 4", .id = TURN_TRY},
	{"behind 0", .id = TURN_BEHIND},
	{"behind 12 a name", .id = TURN_BEHIND},
	{"unfit - 0 0", .id = TURN_UNFIT},
};

START_TEST(a_line_that_is_valid)
{
	const struct valid *v = &valid[_i];

	request_parse(v->text, &r);
	ck_assert_int_eq(r.id, v->id);
	ck_assert_int_eq(r.hold, v->hold);
	ck_assert_int_eq(r.timeout_ms, v->timeout_ms);
	if (v->timeout_ms)
		ck_assert_int_eq(r.own_limit, v->timeout_ms == CONTROL_PAUSE_TIMEOUT_MS);
	ck_assert_int_eq(r.release, v->release);
	ck_assert_uint_eq(r.bytes, v->bytes);
}
END_TEST

static const char *const invalid[] = {
	"",
	" status",
	"status 1",
	"STATUS",
	"trim all",
	"pause x",
	"pause snapshot",
	"pause all 5",
	"pause 5 all x",
	"pause  5",
	"pause -1",
	"pause +1",
	"pause 1x",
	"pause 2147483648",
	"resume all",
	"resume 99999999999999999999",
	"snapshot",
	"snapshot dir",
	"snapshot lz5 /d",
	"snapshot pause 99999999999 /d",
	"snapshot image hold /d",
	"snapshot parts 1 2 /d",
	"snapshot image parts 1 /d",
	"snapshot image parts /d",
	"snapshot image parts 1 2 x /d",
	"done",
	"done dir",
	"recall",
	"recall dir",
	"moved",
	"moved " UUID " /d",
	"moved " UUID "=" UUID,
	"moved " UUID "=" UUID "/d",
	"moved GPU-1=GPU-2 /d",
	"yield",
	"yield x",
	"yield 1 2 3",
	"yield 1 all",
	"room",
	"room 1 2",
	"room 1 held",
	"step",
	"step 0",
	"step 4097",
	"reach 1",
	"reach 0 1:2",
	"reach 1 1",
	"reach 1 1:2x",
	"reach 1 4294967296:2",
	"beside 0",
	"beside 2147483648",
	"commit 1",
	"welcome",
	"behind x",
	"unfit",
	"end",
	"other",
};

START_TEST(a_line_that_is_not)
{
	request_parse(invalid[_i], &r);
	ck_assert_int_eq(r.id, TO_JOB);
	ck_assert(!request_is_order(&r));
	ck_assert_str_eq(r.text, invalid[_i]);
	ck_assert_ptr_nonnull(r.expected);
}
END_TEST

static const struct snapshot {
	const char *text;
	bool pause, incremental, gives_back, image;
	int timeout_ms;
	enum snapshot_codec codec;
	const char *path;
} snapshots[] = {
	{"snapshot /d", false, false, false, false, CONTROL_PAUSE_TIMEOUT_MS, SNAPSHOT_RAW, "/d"},
	{"snapshot /a b", false, false, false, false, CONTROL_PAUSE_TIMEOUT_MS, SNAPSHOT_RAW,
	 "/a b"},
	{"snapshot pause /d", true, false, false, false, CONTROL_PAUSE_TIMEOUT_MS, SNAPSHOT_RAW,
	 "/d"},
	{"snapshot pause 9 none /d", true, false, false, false, 9, SNAPSHOT_RAW, "/d"},
	{"snapshot pause 9 incremental hold image zstd /d", true, true, true, true, 9,
	 SNAPSHOT_ZSTD, "/d"},
	{"snapshot hold lz4 /d", false, false, true, false, CONTROL_PAUSE_TIMEOUT_MS, SNAPSHOT_LZ4,
	 "/d"},
};

START_TEST(a_snapshot)
{
	const struct snapshot *s = &snapshots[_i];

	request_parse(s->text, &r);
	ck_assert_int_eq(r.id, REQUEST_SNAPSHOT);
	ck_assert_int_eq(r.plan.pause, s->pause);
	ck_assert_int_eq(r.plan.incremental, s->incremental);
	ck_assert_int_eq(r.plan.gives_back, s->gives_back);
	ck_assert_int_eq(r.plan.image, s->image);
	ck_assert_int_eq(r.timeout_ms, s->timeout_ms);
	ck_assert_int_eq(r.own_limit, s->timeout_ms == CONTROL_PAUSE_TIMEOUT_MS);
	ck_assert_int_eq(r.plan.codec, s->codec);
	ck_assert_str_eq(r.plan.path, s->path);
}
END_TEST

START_TEST(a_snapshot_of_several)
{
	const int parts[] = {7, 2147483647};

	request_parse("snapshot hold image parts 7 2147483647 zstd /a b", &r);
	ck_assert_int_eq(r.id, REQUEST_SNAPSHOT);
	ck_assert_uint_eq(r.plan.nparts, 2);
	ck_assert_mem_eq(r.plan.parts, parts, sizeof(parts));
	ck_assert_int_eq(r.plan.codec, SNAPSHOT_ZSTD);
	ck_assert_str_eq(r.plan.path, "/a b");
}
END_TEST

START_TEST(a_snapshot_that_has_moved)
{
	request_parse("moved " UUID "=" OTHER " " OTHER "=" UUID " /a b", &r);
	ck_assert_int_eq(r.id, REQUEST_MOVED);
	ck_assert_uint_eq(r.npairs, 2);
	ck_assert_mem_eq(&r.pairs[0].oldUuid, &r.pairs[1].newUuid, sizeof(CUuuid));
	ck_assert_mem_ne(&r.pairs[0].oldUuid, &r.pairs[0].newUuid, sizeof(CUuuid));
	ck_assert_str_eq(r.path, "/a b");
	request_parse("moved /d", &r);
	ck_assert_uint_eq(r.npairs, 0);
	ck_assert_str_eq(r.path, "/d");
}
END_TEST

START_TEST(orders)
{
	request_parse("step 4096", &r);
	ck_assert(request_is_order(&r));
	ck_assert_uint_eq(r.order.step, PROTOCOL_STEP);
	request_parse("reach 7 1:20 4294967295:999999999999999999", &r);
	ck_assert_int_eq(r.id, ORDER_REACH);
	ck_assert_uint_eq(r.order.reach, 7);
	ck_assert_uint_eq(r.order.ntargets, 2);
	ck_assert_uint_eq(r.order.targets[0].id, 1);
	ck_assert_uint_eq(r.order.targets[0].count, 20);
	ck_assert_uint_eq(r.order.targets[1].id, UINT32_MAX);
	ck_assert_uint_eq(r.order.targets[1].count, 999999999999999999);
}
END_TEST

/* As many targets as a process may have communicators, and one more. */
START_TEST(the_most_targets)
{
	char text[2 + 4 * RANKS_COMMS + 32] = "reach 1";

	for (int i = 0; i < RANKS_COMMS; i++)
		strcat(text, " 1:2");
	request_parse(text, &r);
	ck_assert_uint_eq(r.order.ntargets, RANKS_COMMS);
	strcat(text, " 1:2");
	request_parse(text, &r);
	ck_assert_int_eq(r.id, TO_JOB);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("request");
	TCase *tc = tcase_create("request");

	tcase_add_loop_test(tc, a_line_that_is_valid, 0, sizeof(valid) / sizeof(valid[0]));
	tcase_add_loop_test(tc, a_line_that_is_not, 0, sizeof(invalid) / sizeof(invalid[0]));
	tcase_add_loop_test(tc, a_snapshot, 0, sizeof(snapshots) / sizeof(snapshots[0]));
	tcase_add_test(tc, a_snapshot_of_several);
	tcase_add_test(tc, a_snapshot_that_has_moved);
	tcase_add_test(tc, orders);
	tcase_add_test(tc, the_most_targets);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
