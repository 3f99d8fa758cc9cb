/* SPDX-License-Identifier: Apache-2.0 */
#include "common/size.h"
#include "common/ascii.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool size_parse(const char *text, size_t *size)
{
	static const char units[] = "KkMmGgTt";
	char *end;
	unsigned long value;
	const char *unit;
	int shift;

	errno = 0;
	value = strtoul(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	shift = unit ? 10 * ((unit - units) / 2 + 1) : 0;
	if (!ascii_is_digit(*text) || errno || (*end && (!unit || end[1])) ||
	    value > SIZE_MAX >> shift)
		return false;
	*size = value << shift;
	return true;
}
