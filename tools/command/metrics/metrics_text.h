/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_METRICS_TEXT_H
#define CUDAW_METRICS_TEXT_H
/*
 * What is known of jobs and turns, in the text format of Prometheus (version 0.0.4):
 * https://prometheus.io/docs/instrumenting/exposition_formats/. docs/metrics.md lists the metrics; their names stay.
 */
#include <stddef.h>

/* Ask all jobs and cudawd. Returns an exit code; with EXIT_DONE a text in *@text, to be freed, of *@size bytes. */
int metrics_text_make(char **text, size_t *size);

#endif
