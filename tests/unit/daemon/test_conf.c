/* SPDX-License-Identifier: Apache-2.0 */
/* cudawd's file of settings: what it gives, and what is said of what is wrong in it. */
#include "common/conf_file.h"
#include "tools/daemon/conf.h"

#include "tests/check_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UUID "GPU-63756461-772d-7369-6d75-6c6174656400"

static struct conf conf;
static char why[CONF_WHY];

START_TEST(test_all_keys)
{
	ck_assert_int_eq(
		conf_parse(
			"# turns\n[turns]\nquantum = 30\nresidence=2s\n  idle : 0.5\n"
			"rest = 8\nsilence = 20 ; seconds\nrescue = never\ncontext-after = 60\nlinger=3600\nmargin = 1G\n"
			"jobs-per-user = 16\njoin = node\nbatch-after = never\n",
			&conf, why),
		0);
	const double wanted[CONF_KEYS] = {30000,     500, 8000, 0, 60000, 3600000,
					  1UL << 30, 16,  2000, 0, 20000};

	for (int i = 0; i < CONF_KEYS; i++) {
		ck_assert_int_eq(conf.values.given[i], true);
		ck_assert_double_eq(conf.values.value[i], wanted[i]);
	}
	ck_assert_int_eq(conf.joins, true);
}
END_TEST

START_TEST(test_what_is_not_there_is_not_given)
{
	ck_assert_int_eq(conf_parse("", &conf, why), 0);
	for (int i = 0; i < CONF_KEYS; i++)
		ck_assert_int_eq(conf.values.given[i], false);
	ck_assert_int_eq(conf.nlimits + conf.ngpus + conf.joins, 0);
}
END_TEST

/* The policy takes 0 as: by the hand-overs that were measured (turns.h). */
START_TEST(test_what_follows_the_hand_overs)
{
	ck_assert_double_eq(conf_presets[CONF_QUANTUM], 0);
	ck_assert_double_eq(conf_presets[CONF_RESIDENCE], 0);
	ck_assert_double_eq(conf_presets[CONF_IDLE], 0);
}
END_TEST

START_TEST(test_users_and_gpus)
{
	ck_assert_int_eq(conf_parse("[user root]\nweight = 4\n[group @0]\nclasses = batch\n"
				    "[user 54321]\nclasses = interactive, batch\n"
				    "[gpu " UUID "]\nturns = no\n",
				    &conf, why),
			 0);
	ck_assert_int_eq(conf.nlimits, 3);
	ck_assert_int_eq(conf.limits[0].group, false);
	ck_assert_uint_eq(conf.limits[0].id, 0);
	ck_assert_int_eq(conf.limits[0].weight, 4);
	ck_assert_int_eq(conf.limits[0].interactive, true);
	ck_assert_int_eq(conf.limits[1].group, true);
	ck_assert_int_eq(conf.limits[1].weight, 100);
	ck_assert_int_eq(conf.limits[1].interactive, false);
	ck_assert_uint_eq(conf.limits[2].id, 54321);
	ck_assert_int_eq(conf.limits[2].interactive, true);
	ck_assert_int_eq(conf.ngpus, 1);
	ck_assert_str_eq(conf.gpus[0].uuid, UUID);
	ck_assert_int_eq(conf.gpus[0].turns, false);
}
END_TEST

static const struct {
	const char *text;
	int line;
	const char *why;
} wrong[] = {
	{"quantum = 3", 1, "expected a section, found 'quantum'"},
	{"[shaer]", 1,
	 "expected [turns], [user NAME], [group @NAME], [gpu UUID] or [hooks], found '[shaer]'"},
	{"[turns] quantum = 3", 1,
	 "expected a section alone in its line, found '[turns] quantum = 3'"},
	{"[turns", 1, "expected a section alone in its line, found '[turns'"},
	{"[turns x]", 1, "expected [turns], found '[turns x]'"},
	{"[turns]\n[turns]", 2, "[turns] is there twice"},
	{"[turns]\nquantom = 3", 2,
	 "expected quantum, idle, rest, rescue, context-after, linger, margin, "
	 "jobs-per-user, residence, batch-after, silence, join, found 'quantom'"},
	{"[turns]\n\nquantum = 0", 3,
	 "quantum: expected a number of seconds from 0.001 to 1000000, found '0'"},
	{"[turns]\nidle = 1000001", 2,
	 "idle: expected a number of seconds from 0.001 to 1000000, found '1000001'"},
	{"[turns]\nlinger = nan", 2,
	 "linger: expected a number of seconds from 0.001 to 1000000, found 'nan'"},
	{"[turns]\nmargin = much", 2, "margin: expected a size of at most 1024T, found 'much'"},
	{"[turns]\nmargin = 16777215T", 2,
	 "margin: expected a size of at most 1024T, found '16777215T'"},
	{"[turns]\njobs-per-user = 0", 2,
	 "jobs-per-user: expected a whole number from 1 to 256, found '0'"},
	{"[turns]\njobs-per-user = 257", 2,
	 "jobs-per-user: expected a whole number from 1 to 256, found '257'"},
	{"[turns]\njoin = user", 2, "join: expected node or off, found 'user'"},
	{"[turns]\nidle = 1\nidle = 2", 3, "'idle' is there twice"},
	{"[turns]\nidle", 2, "expected KEY = VALUE, or a section"},
	{"[turns]\nidle\nidle = x", 2, "expected KEY = VALUE, or a section"},
	{"[user root]\nturns = no", 2, "expected weight, classes, found 'turns'"},
	{"[user root]\nweight = 101", 2,
	 "weight: expected a whole number from 1 to 100, found '101'"},
	{"[user root]\nweight = 0", 2, "weight: expected a whole number from 1 to 100, found '0'"},
	{"[user root]\nclasses = first", 2,
	 "classes: expected batch, interactive or both, found 'first'"},
	{"[user root]\nclasses =", 2, "classes: expected batch, interactive or both, found ''"},
	{"[user no-such-user]", 1, "expected a user of this machine, found 'no-such-user'"},
	{"[user]", 1, "expected a user of this machine, found ''"},
	{"[user root]\n[user 0]", 2, "a section of '0' is there already"},
	{"[group root]", 1, "expected '@' and a group of this machine, found 'root'"},
	{"[gpu 0]", 1, "expected the UUID of a GPU, found '0'"},
	{"[gpu " UUID "]\nturns = maybe", 2, "turns: expected yes or no, found 'maybe'"},
	{"[gpu " UUID "]\n[gpu " UUID "]", 2, "a section of '" UUID "' is there already"},
	{"[hooks x]", 1, "expected [hooks], found '[hooks x]'"},
	{"[hooks]\n[hooks]", 2, "[hooks] is there twice"},
	{"[hooks]\non_party = /bin/true", 2,
	 "expected user, timeout, or on_ and a kind of events ('cudaw events --help'), found "
	 "'on_party'"},
	{"[hooks]\non_freed = bin/true", 2,
	 "on_freed: expected an absolute path, without arguments, found 'bin/true'"},
	{"[hooks]\non_freed = /a\non_freed = /b", 3, "'on_freed' is there twice"},
	{"[hooks]\nuser = no-such-user", 2,
	 "user: expected a user of this machine, found 'no-such-user'"},
	{"[hooks]\nuser = 123456789", 2,
	 "user: expected a user of this machine, found '123456789'"},
	{"[hooks]\ntimeout = 0", 2,
	 "timeout: expected a number of seconds from 0.001 to 1000000, found '0'"},
	{"[turns]\non_freed = /bin/true", 2,
	 "expected quantum, idle, rest, rescue, context-after, linger, margin, "
	 "jobs-per-user, residence, batch-after, silence, join, found 'on_freed'"},
};

START_TEST(test_hooks)
{
	const struct conf_hooks *h = &conf.hooks;

	ck_assert_int_eq(conf_parse("[hooks]\nuser = root\n", &conf, why), 0);
	ck_assert_int_eq(h->any, false);
	ck_assert_double_eq(h->limit_ms, 10000);
	ck_assert_int_eq(conf_parse("[hooks]\non_freed = /a b\nuser = 0\ntimeout = 2.5\non_left=/c",
				    &conf, why),
			 0);
	ck_assert_int_eq(h->any && h->user, true);
	ck_assert_uint_eq(h->uid, 0);
	ck_assert_double_eq(h->limit_ms, 2500);
	ck_assert_str_eq(h->programs[conf_event("freed")], "/a b");
	ck_assert_str_eq(h->programs[conf_event("left")], "/c");
	ck_assert_str_eq(h->programs[conf_event("saved")], "");
	ck_assert_int_lt(conf_event("party"), 0);
}
END_TEST

START_TEST(test_what_is_wrong)
{
	ck_assert_int_eq(conf_parse(wrong[_i].text, &conf, why), wrong[_i].line);
	ck_assert_str_eq(why, wrong[_i].why);
}
END_TEST

START_TEST(test_long_lines)
{
	char text[1000] = "[turns]\n#";

	memset(text + 9, 'x', 500);
	ck_assert_int_eq(conf_parse(text, &conf, why), 2);
	ck_assert_str_eq(why, "expected a line of at most 197 bytes, found 501");
}
END_TEST

START_TEST(test_bounds)
{
	char *text = calloc(CONF_LIMITS + 1, 16), uuids[2000] = "";
	size_t len = 0;

	for (int i = 0; i <= CONF_LIMITS; i++)
		len += sprintf(text + len, "[user %d]\n", 5000000 + i);
	ck_assert_int_eq(conf_parse(text, &conf, why), CONF_LIMITS + 1);
	ck_assert_str_eq(why, "there are more than 256 sections of users and groups");
	free(text);
	for (int i = len = 0; i <= TURNS_GPUS; i++)
		len += sprintf(uuids + len, "[gpu GPU-00000000-0000-0000-0000-%012x]\n", i);
	ck_assert_int_eq(conf_parse(uuids, &conf, why), TURNS_GPUS + 1);
	ck_assert_str_eq(why, "there are more than 16 sections of GPUs");
}
END_TEST

static void write_file(const char *path, const char *text, size_t size)
{
	FILE *file = fopen(path, "w");

	ck_assert_uint_eq(fwrite(text, 1, size, file), size);
	fclose(file);
}

START_TEST(test_files)
{
	char dir[] = "/tmp/cudaw-conf-XXXXXX", path[64], wanted[160];
	char *large = malloc(CONF_FILE_SIZE + 1);

	ck_assert_ptr_nonnull(mkdtemp(dir));
	sprintf(path, "%s/conf", dir);
	ck_assert_int_eq(conf_read(path, false, &conf, why), 0);
	ck_assert_int_eq(conf_read(path, true, &conf, why), -ENOENT);
	sprintf(wanted, "%s: No such file or directory", path);
	ck_assert_str_eq(why, wanted);
	write_file(path, "\n[turns]\nidle = x\n", 17);
	ck_assert_int_eq(conf_read(path, false, &conf, why), -EBADMSG);
	sprintf(wanted, "%s:3: idle: expected a number of seconds from 0.001 to 1000000, found 'x'",
		path);
	ck_assert_str_eq(why, wanted);
	write_file(path, "[sh\0are]", 8);
	ck_assert_int_eq(conf_read(path, false, &conf, why), -EBADMSG);
	memset(large, '\n', CONF_FILE_SIZE + 1);
	write_file(path, large, CONF_FILE_SIZE + 1);
	ck_assert_int_eq(conf_read(path, false, &conf, why), -EFBIG);
	write_file(path, large, CONF_FILE_SIZE);
	ck_assert_int_eq(conf_read(path, false, &conf, why), 0);
	ck_assert_int_eq(conf_read(dir, false, &conf, why), -EINVAL);
	free(large);
	unlink(path);
	rmdir(dir);
}
END_TEST

static const struct {
	const char *text;
	int joins;
} joining[] = {
	{"", 0},
	{"[turns]\njoin = node\n", 1},
	{"[turns]\njoin = off", 0},
	{"\xef\xbb\xbf[turns] ; all\r\n\tjoin:node ; all\r\n", 1},
	{"[turns]\n# join = off\n;join = off\njoin=node\n[gpu x]\njoin = off", 1},
	{"join = node", 0},
	{"[gpu x]\njoin = node", 0},
	{"[turns]\njoining = node\n", 0},
	{"[turns]\njoin = nodes\n", -EBADMSG},
	{"[turns]\njoin =\n", -EBADMSG},
	{"[turns]\njoin = node\njoin = node\n", -EBADMSG},
};

START_TEST(test_what_jobs_read)
{
	ck_assert_int_eq(conf_file_joins(joining[_i].text), joining[_i].joins);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
	Suite *s = suite_create("conf");
	TCase *tc = tcase_create("conf");

	tcase_add_test(tc, test_all_keys);
	tcase_add_test(tc, test_what_is_not_there_is_not_given);
	tcase_add_test(tc, test_what_follows_the_hand_overs);
	tcase_add_test(tc, test_users_and_gpus);
	tcase_add_test(tc, test_hooks);
	tcase_add_loop_test(tc, test_what_is_wrong, 0, COUNT(wrong));
	tcase_add_test(tc, test_long_lines);
	tcase_add_test(tc, test_bounds);
	tcase_add_test(tc, test_files);
	tcase_add_loop_test(tc, test_what_jobs_read, 0, COUNT(joining));
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
