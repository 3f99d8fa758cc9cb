/* SPDX-License-Identifier: Apache-2.0 */
#include "common/json_out.h"

#include <inttypes.h>
#include <string.h>

#define LINES_DEPTH 2

static void put_string(struct json_out *out, const char *text, size_t size)
{
	fputc('"', out->file);
	for (size_t i = 0; i < size; i++) {
		unsigned char c = text[i];

		if (c == '"' || c == '\\')
			fprintf(out->file, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			fprintf(out->file, "\\u%04x", c);
		else
			fputc(c, out->file);
	}
	fputc('"', out->file);
}

/* The comma, line break and key before a value. */
static void begin(struct json_out *out, const char *key)
{
	if (out->comma)
		fputs(out->depth <= LINES_DEPTH ? "," : ", ", out->file);
	if (out->depth && out->depth <= LINES_DEPTH)
		fputc('\n', out->file);
	if (key) {
		put_string(out, key, strlen(key));
		fputs(": ", out->file);
	}
	out->comma = true;
}

void json_open(struct json_out *out, const char *key, char bracket)
{
	begin(out, key);
	fputc(bracket, out->file);
	out->depth++;
	out->comma = false;
}

void json_close(struct json_out *out, char bracket)
{
	fputc(bracket, out->file);
	out->depth--;
	out->comma = true;
}

void json_bytes(struct json_out *out, const char *key, const char *value, size_t size)
{
	begin(out, key);
	put_string(out, value, size);
}

void json_text(struct json_out *out, const char *key, const char *value)
{
	if (value) {
		json_bytes(out, key, value, strlen(value));
		return;
	}
	begin(out, key);
	fputs("null", out->file);
}

void json_number(struct json_out *out, const char *key, uint64_t value)
{
	begin(out, key);
	fprintf(out->file, "%" PRIu64, value);
}

/* printf() is of no use here: its decimal point depends on the program's locale. */
void json_decimal(struct json_out *out, const char *key, double value)
{
	uint64_t thousandths = value > 0 ? (uint64_t)(value * 1000 + 0.5) : 0;

	begin(out, key);
	fprintf(out->file, "%" PRIu64 ".%03u", thousandths / 1000, (unsigned)(thousandths % 1000));
}

void json_bool(struct json_out *out, const char *key, bool value)
{
	begin(out, key);
	fputs(value ? "true" : "false", out->file);
}

const char *json_decode(const char *string, char *buf, size_t size)
{
	const unsigned char *p = (const unsigned char *)string;
	size_t n = 0;

	/* U+0080 to U+00FF stand for bytes; no other character beyond ASCII is ever written. */
	for (; *p && n < size - 1; p++) {
		if ((*p & 0xfc) == 0xc0 && p[1]) {
			buf[n++] = *p << 6 | (p[1] & 0x3f);
			p++;
		} else {
			buf[n++] = *p < 0x80 ? *p : '?';
		}
	}
	buf[n] = '\0';
	return buf;
}
