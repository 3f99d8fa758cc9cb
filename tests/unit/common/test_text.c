/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"
#include "tests/check_suite.h"

#include <time.h>

/* As gmtime(3) has it, which the faces do not call. */
START_TEST(times_in_utc)
{
	static const uint64_t days[] = {0,     58,    59,    60,    364,    365,   789,
					790,   11015, 11016, 11017, 11322,  11323, 20786,
					20787, 47540, 47541, 84006, 2932896};

	for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++)
		for (uint64_t second = 0; second < 86400; second += 43199) {
			const time_t when = (time_t)(days[i] * 86400 + second);
			char want[64], got[FORMAT_SIZE];

			strftime(want, sizeof(want), "%FT%T.007Z", gmtime(&when));
			ck_assert_str_eq(format_utc(got, (uint64_t)when * 1000 + 7), want);
		}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("text");
	TCase *tc = tcase_create("times");

	tcase_add_test(tc, times_in_utc);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
