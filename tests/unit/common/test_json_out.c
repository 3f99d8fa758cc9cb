/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as it is written. */
#include "common/json_out.h"

#include "tests/check_suite.h"

#include <stdio.h>
#include <stdlib.h>

START_TEST(values_of_all_kinds)
{
	char *text;
	size_t size;
	struct json_out out = {.file = open_memstream(&text, &size)};

	json_open(&out, NULL, '{');
	json_text(&out, "a\"\\", "x\n\x1b\x7f\xc3\xa9");
	json_bytes(&out, "b", "\0z", 2);
	json_open(&out, "c", '[');
	json_open(&out, NULL, '{');
	json_number(&out, "d", UINT64_MAX);
	json_decimal(&out, "e", 12.0006);
	json_close(&out, '}');
	json_bool(&out, NULL, false);
	json_close(&out, ']');
	json_open(&out, "f", '[');
	json_close(&out, ']');
	json_text(&out, "g", NULL);
	json_close(&out, '}');
	fclose(out.file);
	ck_assert_str_eq(text, "{\n\"a\\\"\\\\\": \"x\\u000a\\u001b\\u007f\\u00c3\\u00a9\",\n"
			       "\"b\": \"\\u0000z\",\n\"c\": [\n"
			       "{\"d\": 18446744073709551615, \"e\": 12.001},\nfalse],\n\"f\": "
			       "[],\n\"g\": null}");
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("json_out");
	TCase *tc = tcase_create("json_out");

	tcase_add_test(tc, values_of_all_kinds);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
