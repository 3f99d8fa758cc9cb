/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *error_text(int error)
{
	const char *text = strerrordesc_np(error);

	return text ? text : "unknown error";
}

/* @value with one decimal below 99.95, and with none above. */
static const char *format_scaled(char *buf, double value, const char *unit)
{
	uint64_t tenths = (uint64_t)(value * 10 + 0.5);

	if (tenths < 1000)
		snprintf(buf, FORMAT_SIZE, "%" PRIu64 ".%u %s", tenths / 10,
			 (unsigned int)(tenths % 10), unit);
	else
		snprintf(buf, FORMAT_SIZE, "%" PRIu64 " %s", (uint64_t)(value + 0.5), unit);
	return buf;
}

const char *format_bytes(char *buf, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = bytes / 1024.0;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(buf, FORMAT_SIZE, "%" PRIu64 " B", bytes);
		return buf;
	}
	/* A value that would be printed as 1024 gets the next unit. */
	while (value >= 1023.5) {
		value /= 1024;
		unit++;
	}
	return format_scaled(buf, value, units[unit]);
}

const char *format_duration(char *buf, double ms)
{
	uint64_t seconds = (uint64_t)(ms + 500) / 1000;

	if (ms < 1000)
		snprintf(buf, FORMAT_SIZE, "%d ms", (int)ms);
	else if (ms < 9950)
		format_scaled(buf, ms / 1e3, "s");
	else if (seconds < 60)
		snprintf(buf, FORMAT_SIZE, "%" PRIu64 " s", seconds);
	else if (seconds < 3600)
		snprintf(buf, FORMAT_SIZE, "%" PRIu64 " min %" PRIu64 " s", seconds / 60,
			 seconds % 60);
	else
		snprintf(buf, FORMAT_SIZE, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
			 seconds / 60 % 60);
	return buf;
}

const char *format_seconds(char *buf, double ms)
{
	uint64_t thousandths = (uint64_t)(ms + 0.5);
	int len = snprintf(buf, FORMAT_SIZE, "%" PRIu64 ".%03u", thousandths / 1000,
			   (unsigned int)(thousandths % 1000));

	while (buf[len - 1] == '0')
		len--;
	if (buf[len - 1] == '.')
		len--;
	strcpy(buf + len, " s");
	return buf;
}

static bool is_leap(unsigned int year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* gmtime(3) may read files of the machine's, and takes a lock. */
const char *format_utc(char *buf, uint64_t unix_ms)
{
	static const unsigned int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	const unsigned int part = unix_ms % 1000, second = unix_ms / 1000 % 86400;
	unsigned int days = unix_ms / 1000 / 86400, year = 1970, month = 0, length;

	for (; days >= (length = 365 + is_leap(year)); year++)
		days -= length;
	for (; days >= (length = lengths[month] + (month == 1 && is_leap(year))); month++)
		days -= length;
	snprintf(buf, FORMAT_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", year, month + 1, days + 1,
		 second / 3600, second / 60 % 60, second % 60, part);
	return buf;
}

double rate_gbps(uint64_t bytes, double ms)
{
	return ms > 0 ? bytes / 1e6 / ms : 0;
}

const char *format_rate(char *buf, uint64_t bytes, double ms)
{
	uint64_t tenths = (uint64_t)(rate_gbps(bytes, ms) * 10 + 0.5);

	snprintf(buf, FORMAT_SIZE, "%" PRIu64 ".%u GB/s", tenths / 10, (unsigned int)(tenths % 10));
	return buf;
}

/* The length of the printable UTF-8 character at @p, or 0 if there is none. */
static size_t character(const unsigned char *p)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t code = p[0] & (0xff >> (len + 1));

	if (len == 1)
		return p[0] >= 0x20 && p[0] != 0x7f;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (p[i] & 0x3f);
	}
	/*
	 * Below 0xa0 are the C1 controls, which some terminals obey. From 0xd800 on are surrogates.
	 */
	if (code < least[len] || code < 0xa0 || code > 0x10ffff || (code >> 11) == 0x1b)
		return 0;
	/* Line and paragraph separators, and marks that reverse the direction of the text. */
	if (code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
	    (code >= 0x2066 && code <= 0x2069))
		return 0;
	return len;
}

void format_copy(char *buf, size_t size, const char *text)
{
	size_t len;

	snprintf(buf, size, "%s", text);
	for (unsigned char *p = (unsigned char *)buf; *p; p += len) {
		len = character(p);
		if (!len) {
			*p = '?';
			len = 1;
		}
	}
}
