/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTPUT_H
#define CUDAW_OUTPUT_H
/* What --json prints. */
#include <jansson.h>

/*
 * Print @root on stdout, and a newline. Times are in milliseconds to the microsecond, and so are
 * printed, not as the 17 digits that a double may need.
 */
void output_json(const json_t *root);

#endif
