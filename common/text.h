/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TEXT_H
#define CUDAW_TEXT_H
/*
 * Numbers for people: memory in binary units (31.2 GiB), rates in decimal ones as in data sheets
 * (28.3 GB/s). Each function writes to @buf, of FORMAT_SIZE bytes, and returns it.
 */
#include <stddef.h>
#include <stdint.h>

#define FORMAT_SIZE 32

/* For "%.2f GiB" of bytes / GIB. */
#define GIB ((double)(1UL << 30))

const char *format_bytes(char *buf, uint64_t bytes);           /* 0 B, 340 MiB, 31.2 GiB */
const char *format_duration(char *buf, uint64_t ms);           /* 340 ms, 1.1 s, 3 min 20 s */
const char *format_us(char *buf, double us);                   /* 0.2 us, 340 us, 12.5 ms, 900 s */
const char *format_rate(char *buf, uint64_t bytes, double ms); /* 28.3 GB/s */

/* Bytes in @ms milliseconds as GB/s; 0 if no time has passed. */
double rate_gbps(uint64_t bytes, double ms);

/*
 * Copy @text to @buf of @size bytes, cut if necessary, with '?' for every byte that is a control
 * character, reverses the direction of the text, or is not valid UTF-8. So text from other
 * processes cannot control or mislead the terminal, or break JSON.
 */
void format_copy(char *buf, size_t size, const char *text);

#endif
