/* SPDX-License-Identifier: Apache-2.0 */
/*
 * That changes which are alike do not cancel out in a digest: of either sum alone, which of 64 good
 * bits never happens in so few trials.
 */
#include "tests/digest_formula.h"

#include "tests/check_suite.h"

#include <stdlib.h>
#include <string.h>

#define TRIALS 5000 /* of each change, on each kind of contents */
#define WORDS  (VMEM_GRANULE / sizeof(uint64_t))

enum contents { NOISE, DOUBLES, FLOATS, SMALL, ZEROS, NCONTENTS };

static uint64_t state;

static uint64_t noise(void)
{
	state += 0x9e3779b97f4a7c15;
	return (state ^ state >> 31) * 0xbf58476d1ce4e5b9 ^ state >> 27;
}

static uint64_t word_of(enum contents contents)
{
	double number = (int64_t)noise() / 1e18;
	float pair[2] = {(float)number, (int32_t)noise() / 1e9f};
	uint64_t word;

	switch (contents) {
	case DOUBLES:
		memcpy(&word, &number, sizeof(word));
		return word;
	case FLOATS:
		memcpy(&word, pair, sizeof(word));
		return word;
	case SMALL:
		return noise() % 1000;
	case ZEROS:
		return 0;
	default:
		return noise();
	}
}

/* Change @n words by @mask, or by one where that is 0; neighbours or not. */
static void changes_do_not_cancel(enum contents contents, int n, uint64_t mask)
{
	for (int trial = 0; trial < TRIALS; trial++) {
		struct digest before = {0}, after = {0};
		uint64_t first = noise();

		for (int k = 0; k < n; k++) {
			uint64_t i = (trial % 2 ? first + k : noise()) % WORDS;
			uint64_t w = word_of(contents);

			digest_add(&before, i, w);
			digest_add(&after, i, mask ? w ^ mask : k % 2 ? w + 1 : w - 1);
		}
		ck_assert_msg(before.sum != after.sum && before.mix != after.mix,
			      "%d words of kind %d, changed by %#lx", n, contents, mask);
	}
}

START_TEST(one_bit)
{
	for (int contents = 0; contents < NCONTENTS; contents++) {
		changes_do_not_cancel(contents, 2, 1UL << _i);
		changes_do_not_cancel(contents, 4, 1UL << _i);
	}
}
END_TEST

START_TEST(several_bits)
{
	static const uint64_t masks[] = {0x8000000080000000, /* the signs of two floats */
					 0x8000800080008000, /* of four halves */
					 3UL << 62, ~0UL, 0};

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
		for (int contents = 0; contents < NCONTENTS; contents++) {
			changes_do_not_cancel(contents, 2, masks[i]);
			changes_do_not_cancel(contents, 4, masks[i]);
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("digest");
	TCase *tc = tcase_create("changes");

	tcase_add_loop_test(tc, one_bit, 0, 64);
	tcase_add_test(tc, several_bits);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
