/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTPUT_H
#define CUDAW_OUTPUT_H
/* The output of --json, except for 'cudaw kernels', which prints a line for each kernel. */
#include <jansson.h>

/*
 * Print @root on stdout, and a newline. Numbers that are not integers have at most 12 significant
 * digits: milliseconds stay exact to the microsecond for 11 days, and 0.1 stays 0.1, also as a sum.
 * Returns an exit code.
 */
int output_json(const json_t *root);

/* @ms as a JSON number, rounded to the microsecond. */
json_t *output_ms(double ms);

/* @text as a JSON string, cleaned: jansson refuses invalid UTF-8. */
json_t *output_text(const char *text);

#endif
