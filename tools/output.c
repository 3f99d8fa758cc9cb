/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/output.h"

#include "tools/tools.h"

#include <stdio.h>

#define DIGITS 12
#define FLAGS  (JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS))

int output_json(const json_t *root)
{
	int error = json_dumpf(root, stdout, FLAGS);

	putchar('\n');
	return error ? EXIT_FAILED : EXIT_DONE;
}
