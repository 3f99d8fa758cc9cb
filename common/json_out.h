/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JSON_OUT_H
#define CUDAW_JSON_OUT_H
/*
 * Writing JSON without a library, for the injected code. The functions put one value after another,
 * with its key inside an object. Each element of the outer two levels begins a line. The caller
 * keeps open and close in order.
 *
 * Strings may be any bytes. Bytes that are not ASCII are written as \u0080 to \u00ff, so that a
 * path that is not UTF-8 stays complete. json_decode() is for their readers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_out {
	FILE *file; /* its error flag records failures */
	int depth;
	bool comma; /* before the next value */
};

/* @key is NULL in an array. @bracket: '{' or '['. */
void json_open(struct json_out *out, const char *key, char bracket);
void json_close(struct json_out *out, char bracket);
void json_text(struct json_out *out, const char *key, const char *value); /* NULL: null */
void json_bytes(struct json_out *out, const char *key, const char *value, size_t size);
void json_number(struct json_out *out, const char *key, uint64_t value);
void json_decimal(struct json_out *out, const char *key, double value); /* three decimals */
void json_bool(struct json_out *out, const char *key, bool value);

/* The bytes of a string that was written so, as a library gives it (UTF-8), cut to @size. Returns @buf. */
const char *json_decode(const char *string, char *buf, size_t size);

#endif
