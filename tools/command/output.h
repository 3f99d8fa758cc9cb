/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTPUT_H
#define CUDAW_OUTPUT_H
/*
 * The output of --json. docs/json.md lists the keys of every command, and a test compares. 'cudaw
 * kernels' writes its array itself, with a line for each kernel.
 */
#include <jansson.h>

struct job_transfer;

/*
 * The value of "schema" in every object that a command prints: it grows when a key goes away or
 * changes its meaning. A new key does not change it.
 */
#define OUTPUT_SCHEMA 1

/*
 * Print @root on stdout, and a newline: an object, or an array of objects, which get the key
 * "schema". Numbers that are not integers have at most 12 significant
 * digits: milliseconds stay exact to the microsecond for 11 days, and 0.1 stays 0.1, also as a sum.
 * Returns an exit code.
 */
int output_json(json_t *root);

/*
 * Replace the file at @path by one with @text, in one step, which others may read. What is there and is no regular file
 * is refused. If that fails, the file stays as it was, and a message says why. Without @path, @text goes to stdout, and
 * the end of the command says what could not be written (main() in cudaw.c). Returns an exit code.
 */
int output_file(const char *path, const char *text, size_t size);

/* Give @object its "schema". */
void output_stamp(json_t *object);

/*
 * Add the figures of a pause or a resume to @object: @prefix and "ms", "bytes", "gbps" (null if
 * unknown) and "phases" (an object of milliseconds).
 */
void output_transfer(json_t *object, const char *prefix, const struct job_transfer *transfer);

/* Append the phases of @transfer to @phases, an array: an object with "name" and "ms" for each. */
void output_phases(json_t *phases, const struct job_transfer *transfer);

/* @ms as a JSON number, rounded to the microsecond. */
json_t *output_ms(double ms);

/* @text as a JSON string, cleaned: jansson refuses invalid UTF-8. */
json_t *output_text(const char *text);

/* The same; null for an empty one. */
json_t *output_text_or_null(const char *text);

#endif
