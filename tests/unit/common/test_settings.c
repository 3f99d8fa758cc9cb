/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, and reading and checking them. */
#include "common/settings.h"
#include "common/size.h"

#include "tests/check_suite.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char log_path[] = "/tmp/cudaw-settings-XXXXXX";

static void set(enum setting_id id, const char *value)
{
	ck_assert_int_eq(setenv(settings[id].name, value, 1), 0);
}

/* Each test has a process of its own, so a log of its own. */
static void begin(void)
{
	for (int id = 0; id < SETTINGS; id++)
		unsetenv(settings[id].name);
	close(mkstemp(log_path));
	set(SETTING_LOG_FILE, log_path);
}

static void end(void)
{
	unlink(log_path);
}

/* The log is @want, without what stands before "settings: " in each line. */
static void check_log(const char *want)
{
	char text[4096] = "", line[1024];
	FILE *file = fopen(log_path, "r");

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		ck_assert_ptr_nonnull(strstr(line, "error: settings: "));
		strcat(text, strstr(line, "settings: ") + strlen("settings: "));
	}
	fclose(file);
	ck_assert_str_eq(text, want);
}

START_TEST(names_begin_alike_and_differ)
{
	for (int id = 0; id < SETTINGS; id++) {
		ck_assert_int_eq(strncmp(settings[id].name, "CUDAW_", 6), 0);
		for (int other = 0; other < id; other++)
			ck_assert_str_ne(settings[id].name, settings[other].name);
	}
}
END_TEST

/* A word that is used by default, or instead of others, is one of the setting's. */
START_TEST(presets_are_usable)
{
	char why[SETTING_WHY];

	for (int id = 0; id < SETTINGS; id++) {
		const struct setting *s = &settings[id];

		ck_assert_int_eq(s->kind == A_WORD || s->kind == A_LIST, s->words[0] != NULL);
		ck_assert_int_eq(s->kind == A_TEXT || s->instead || s->kind == A_WORD, 1);
		if (s->kind == A_WORD || s->kind == A_SIGNAL || s->kind == A_SOCKET ||
		    s->kind == A_WEIGHT)
			ck_assert_msg(setting_check(s, s->preset, why), "%s: %s", s->name, why);
		if (s->kind == A_WORD && s->instead)
			ck_assert_msg(setting_check(s, s->instead, why), "%s: %s", s->name, why);
	}
}
END_TEST

START_TEST(what_is_not_set_has_no_value)
{
	unsigned long seconds;
	size_t size = 7;

	for (int empty = 0; empty < 2; empty++) {
		if (empty) {
			set(SETTING_NAME, "");
			set(SETTING_RELEASE, "");
			set(SETTING_VERIFY, "");
			set(SETTING_HOST_POOL, "");
			set(SETTING_TURNS, "");
			set(SETTING_TURNS_WEIGHT, "");
			set(SETTING_TURNS_CONTEXT_AFTER, "");
		}
		ck_assert_ptr_null(setting_text(SETTING_NAME));
		ck_assert_ptr_null(setting_word(SETTING_RELEASE));
		ck_assert_int_eq(setting_enabled(SETTING_VERIFY), false);
		setting_size(SETTING_HOST_POOL, &size);
		ck_assert_uint_eq(size, 7);
		ck_assert_ptr_null(setting_socket(SETTING_TURNS));
		ck_assert_int_eq(setting_weight(SETTING_TURNS_WEIGHT), 1);
		ck_assert(!setting_time(SETTING_TURNS_CONTEXT_AFTER, &seconds));
	}
	ck_assert_int_eq(setting_signal(SETTING_SIGNAL_PAUSE), SIGUSR1);
	ck_assert_int_eq(setting_signal(SETTING_SIGNAL_RESUME), SIGUSR2);
	check_log("");
}
END_TEST

START_TEST(values_are_read)
{
	size_t size = 7;
	unsigned long seconds;

	set(SETTING_NAME, "train");
	set(SETTING_RELEASE, "memory");
	set(SETTING_VERIFY, "1");
	set(SETTING_PREPARE, "0");
	set(SETTING_HOST_POOL, "8G");
	set(SETTING_SIGNAL_PAUSE, "SIGHUP");
	set(SETTING_SIGNAL_RESUME, "none");
	ck_assert_str_eq(setting_text(SETTING_NAME), "train");
	ck_assert_str_eq(setting_word(SETTING_RELEASE), "memory");
	ck_assert_int_eq(setting_enabled(SETTING_VERIFY), true);
	ck_assert_int_eq(setting_enabled(SETTING_PREPARE), false);
	setting_size(SETTING_HOST_POOL, &size);
	ck_assert_uint_eq(size, 8UL << 30);
	ck_assert_int_eq(setting_signal(SETTING_SIGNAL_PAUSE), SIGHUP);
	ck_assert_int_eq(setting_signal(SETTING_SIGNAL_RESUME), 0);
	set(SETTING_TURNS, "off");
	ck_assert_ptr_null(setting_socket(SETTING_TURNS));
	set(SETTING_TURNS, "node");
	ck_assert_str_eq(setting_socket(SETTING_TURNS), "node");
	set(SETTING_TURNS, "/run/x.sock");
	ck_assert_str_eq(setting_socket(SETTING_TURNS), "/run/x.sock");
	set(SETTING_TURNS_WEIGHT, "100");
	ck_assert_int_eq(setting_weight(SETTING_TURNS_WEIGHT), 100);
	set(SETTING_TURNS_CONTEXT_AFTER, "1000000");
	ck_assert(setting_time(SETTING_TURNS_CONTEXT_AFTER, &seconds));
	ck_assert_uint_eq(seconds, 1000000);
	set(SETTING_TURNS_CONTEXT_AFTER, "never");
	ck_assert(setting_time(SETTING_TURNS_CONTEXT_AFTER, &seconds));
	ck_assert_uint_eq(seconds, 0);
	check_log("");
}
END_TEST

START_TEST(wrong_weights)
{
	static const char *const wrong[] = {"0", "101", "1K", "-1", "1.5", "two", " 2"};
	char why[SETTING_WHY];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!setting_check(&settings[SETTING_TURNS_WEIGHT], wrong[i], why),
			      "'%s' is a weight", wrong[i]);
}
END_TEST

START_TEST(wrong_times)
{
	static const char *const wrong[] = {
		"0", "1000001", "1K", "-1", "1.5", "60s", "Never", " 2", "99999999999999999999"};
	char why[SETTING_WHY];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!setting_check(&settings[SETTING_TURNS_CONTEXT_AFTER], wrong[i], why),
			      "'%s' is a time", wrong[i]);
}
END_TEST

/* Twice each: the log says it once. */
START_TEST(wrong_values_are_logged_once)
{
	size_t size = 7;

	set(SETTING_RELEASE, "mem");
	set(SETTING_ADDRESSING, "real");
	set(SETTING_TO_DRIVER, "export,memory");
	set(SETTING_CHECK, "yes");
	set(SETTING_VERIFY, "yes");
	set(SETTING_HOST_POOL, "8x");
	set(SETTING_SIGNAL_PAUSE, "SIGKILL");
	set(SETTING_SIGNAL_RESUME, "");
	set(SETTING_TURNS, "run/x.sock");
	set(SETTING_TURNS_WEIGHT, "0");
	for (int i = 0; i < 2; i++) {
		ck_assert_str_eq(setting_word(SETTING_RELEASE), "all");
		ck_assert_ptr_null(setting_word(SETTING_ADDRESSING));
		ck_assert(setting_lists(SETTING_TO_DRIVER, "memory"));
		ck_assert(!setting_lists(SETTING_TO_DRIVER, "exports"));
		ck_assert_str_eq(setting_word(SETTING_CHECK), "1");
		ck_assert_int_eq(setting_enabled(SETTING_VERIFY), true);
		setting_size(SETTING_HOST_POOL, &size);
		ck_assert_uint_eq(size, 7);
		ck_assert_int_eq(setting_signal(SETTING_SIGNAL_PAUSE), SIGUSR1);
		ck_assert_int_eq(setting_signal(SETTING_SIGNAL_RESUME), SIGUSR2);
		ck_assert_ptr_null(setting_socket(SETTING_TURNS));
		ck_assert_int_eq(setting_weight(SETTING_TURNS_WEIGHT), 1);
	}
	check_log(
		"CUDAW_RELEASE=mem: expected all or memory; all is used\n"
		"CUDAW_ADDRESSING=real: expected mapped or translated; "
		"the default is used\n"
		"CUDAW_TO_DRIVER=export,memory: expected some of memory, multicast, fabric or exports, "
		"separated by commas; the words that are known count\n"
		"CUDAW_CHECK=yes: expected 0, 1, warn or strict; 1 is used\n"
		"CUDAW_VERIFY=yes: expected 0 or 1; 1 is used\n"
		"CUDAW_HOST_POOL=8x: expected a number of bytes, as 8G; the default is used\n"
		"CUDAW_SIGNAL_PAUSE=SIGKILL: expected a signal's name, a number or none; "
		"USR1 is used\n"
		"CUDAW_SIGNAL_RESUME=: expected a signal's name, a number or none; "
		"USR2 is used\n"
		"CUDAW_TURNS=run/x.sock: expected off, user, node or an absolute path; "
		"off is used\n"
		"CUDAW_TURNS_WEIGHT=0: expected a whole number from 1 to 100; 1 is used\n");
}
END_TEST

/* The log reads its own settings while it writes the first line. */
START_TEST(a_wrong_level_of_the_log_is_error)
{
	set(SETTING_LOG, "loud");
	set(SETTING_RELEASE, "mem");
	ck_assert_str_eq(setting_word(SETTING_RELEASE), "all");
	check_log("CUDAW_RELEASE=mem: expected all or memory; all is used\n");
}
END_TEST

static bool is_read(const char *text, size_t expected)
{
	size_t size = 5;
	bool read = size_parse(text, &size);

	ck_assert_msg(size == (read ? expected : 5), "%s is %zu", text, size);
	return read;
}

START_TEST(sizes_are_read)
{
	static const char *const bad[] = {
		"",   " 1",  "+1",        "-1",           "G",
		"1x", "1GB", "16777216T", "17179869184G", "18446744073709551616"};

	ck_assert(is_read("0", 0));
	ck_assert(is_read("1K", 1024));
	ck_assert(is_read("512M", 512UL << 20));
	ck_assert(is_read("4147m", 4147UL << 20));
	ck_assert(is_read("16777215T", 16777215UL << 40));
	ck_assert(is_read("18446744073709551615", SIZE_MAX));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!is_read(bad[i], 0), "'%s' is a size", bad[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings");
	TCase *tc = tcase_create("settings");

	tcase_add_checked_fixture(tc, begin, end);
	tcase_add_test(tc, names_begin_alike_and_differ);
	tcase_add_test(tc, presets_are_usable);
	tcase_add_test(tc, what_is_not_set_has_no_value);
	tcase_add_test(tc, values_are_read);
	tcase_add_test(tc, wrong_weights);
	tcase_add_test(tc, wrong_times);
	tcase_add_test(tc, wrong_values_are_logged_once);
	tcase_add_test(tc, a_wrong_level_of_the_log_is_error);
	tcase_add_test(tc, sizes_are_read);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
