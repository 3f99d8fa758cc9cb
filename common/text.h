/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TEXT_H
#define CUDAW_TEXT_H
/*
 * Numbers for people: memory in binary units (31.2 GiB), rates in decimal ones as in data sheets
 * (28.3 GB/s). Each function writes to @buf, of FORMAT_SIZE bytes, and returns it.
 *
 * The text does not depend on the locale, as that of printf(3) for floating-point numbers and of
 * strerror(3) does: it may be made in the process of any program. But the functions
 * for bytes, durations and rates change the floating-point flags: in the program's threads PRI_GIB serves.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#define FORMAT_SIZE 40

/* For printf(3), as "31.25 GiB": PRI_GIB, with GIB_ARGS(bytes), which looks at @bytes twice. */
#define PRI_GIB         "%" PRIu64 ".%02u GiB"
#define GIB_ARGS(bytes) gib_hundredths(bytes) / 100, (unsigned int)(gib_hundredths(bytes) % 100)
static inline uint64_t gib_hundredths(uint64_t bytes)
{
	return (bytes / 1024 * 100 + (1 << 19)) >> 20;
}

/* As strerror(3) of a positive @error, in English. */
const char *error_text(int error);

const char *format_bytes(char *buf, uint64_t bytes);           /* 0 B, 340 MiB, 31.2 GiB */
const char *format_duration(char *buf, double ms);             /* 340 ms, 1.1 s, 3 min 20 s */
const char *format_seconds(char *buf, double ms);              /* 10 s, 0.25 s */
const char *format_rate(char *buf, uint64_t bytes, double ms); /* 28.3 GB/s */

/* The time @unix_ms, in milliseconds since 1970, in UTC: 2026-11-29T11:12:13.123Z. */
const char *format_utc(char *buf, uint64_t unix_ms);

/* Bytes in @ms milliseconds as GB/s; 0 if no time has passed. */
double rate_gbps(uint64_t bytes, double ms);

/*
 * Copy @text to @buf of @size bytes, cut if necessary, with '?' for every byte that is a control
 * character, reverses the direction of the text, or is not valid UTF-8. So text from other
 * processes cannot control or mislead the terminal, or break JSON.
 */
void format_copy(char *buf, size_t size, const char *text);

#endif
