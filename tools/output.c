/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/output.h"

#include <stdio.h>

/* Enough for microseconds of years, and so few that 0.1 stays 0.1. */
#define DIGITS 15

void output_json(const json_t *root)
{
	json_dumpf(root, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS));
	putchar('\n');
}
