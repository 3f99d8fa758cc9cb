/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/output.h"

#include "common/text.h"
#include "tools/command/tools.h"

#include <stdint.h>
#include <stdio.h>

#define DIGITS 12
#define TEXT   4096
#define FLAGS  (JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS))

json_t *output_text(const char *text)
{
	char clean[TEXT];

	format_copy(clean, sizeof(clean), text);
	return json_string(clean);
}

json_t *output_ms(double ms)
{
	/* A job may have sent any number. */
	return json_real(ms < 1e12 ? (int64_t)(ms * 1e3 + 0.5) / 1e3 : ms);
}

int output_json(const json_t *root)
{
	int error = json_dumpf(root, stdout, FLAGS);

	putchar('\n');
	return error ? EXIT_FAILED : EXIT_DONE;
}
