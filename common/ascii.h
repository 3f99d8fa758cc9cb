/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ASCII_H
#define CUDAW_ASCII_H
/* As <ctype.h> has them in the C locale, whatever that of the program is. For any char. */
#include <stdbool.h>

static inline bool ascii_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool ascii_is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static inline bool ascii_is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static inline bool ascii_is_alpha(char c)
{
	return ascii_is_upper(c) || ascii_is_lower(c);
}

static inline bool ascii_is_alnum(char c)
{
	return ascii_is_alpha(c) || ascii_is_digit(c);
}

static inline bool ascii_is_xdigit(char c)
{
	return ascii_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static inline bool ascii_is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline bool ascii_is_print(char c)
{
	return c >= ' ' && c <= '~';
}

#endif
