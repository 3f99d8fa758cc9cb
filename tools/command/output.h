/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTPUT_H
#define CUDAW_OUTPUT_H
/* What --json prints, but for 'cudaw kernels', which has one line for each kernel. */
#include <jansson.h>

/*
 * Print @root on stdout, and a newline. What is no integer has 12 significant digits at the most:
 * milliseconds stay exact to the microsecond for 11 days, and 0.1 stays 0.1, also as a sum. Returns
 * an exit code.
 */
int output_json(const json_t *root);

/* @text as a JSON string, cleaned: jansson takes no other. */
json_t *output_text(const char *text);

#endif
