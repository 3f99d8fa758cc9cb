/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const prefixes[] = {
	[SNAPSHOT_DATA] = "data-",
	[SNAPSHOT_INDEX] = "index-",
	[SNAPSHOT_HOST] = "host-",
	[SNAPSHOT_PARTS] = "parts-",
};

void snapshot_name(enum snapshot_kind kind, uint32_t number, char name[SNAPSHOT_NAME_SIZE])
{
	snprintf(name, SNAPSHOT_NAME_SIZE, "%s%u", prefixes[kind], number % 1000000000);
}

void snapshot_part_name(uint32_t number, int pid, char name[SNAPSHOT_PART_SIZE])
{
	char parts[SNAPSHOT_NAME_SIZE];

	snapshot_name(SNAPSHOT_PARTS, number, parts);
	snprintf(name, SNAPSHOT_PART_SIZE, "%s/%d", parts, pid);
}

bool snapshot_parse_name(const char *name, enum snapshot_kind *kind, uint32_t *number)
{
	char made[SNAPSHOT_NAME_SIZE];

	for (enum snapshot_kind k = SNAPSHOT_DATA; k <= SNAPSHOT_PARTS; k++) {
		size_t len = strlen(prefixes[k]);

		if (strncmp(name, prefixes[k], len) || strlen(name) >= sizeof(made))
			continue;
		*number = strtoul(name + len, NULL, 10);
		*kind = k;
		snapshot_name(k, *number, made);
		return *number && !strcmp(name, made);
	}
	return false;
}

int snapshot_fail(struct snapshot_error *error, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error->text, sizeof(error->text), fmt, ap);
	va_end(ap);
	return code;
}

void snapshot_seal(const char *text, size_t size, char seal[SNAPSHOT_SEAL_SIZE + 1])
{
	char hash[HASH_TEXT_SIZE];

	hash_text(hash_bytes(text, size), hash);
	snprintf(seal, SNAPSHOT_SEAL_SIZE + 1, ",\n\"checksum\": \"%s\"\n}\n", hash);
}

bool snapshot_is_sealed(const char *text, size_t size)
{
	char seal[SNAPSHOT_SEAL_SIZE + 1];

	if (size <= SNAPSHOT_SEAL_SIZE)
		return false;
	snapshot_seal(text, size - SNAPSHOT_SEAL_SIZE, seal);
	return !strcmp(text + size - SNAPSHOT_SEAL_SIZE, seal);
}
