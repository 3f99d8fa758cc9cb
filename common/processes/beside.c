/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/beside.h"
#include "common/processes/maps.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const stems[] = {"libnvcuvid.so", "libnvidia-encode.so"};

static bool is_beside(const char *name)
{
	for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++)
		if (!strncmp(name, stems[i], strlen(stems[i])))
			return true;
	return false;
}

int beside_driver(pid_t pid, char name[static BESIDE_SIZE])
{
	bool found = false;
	struct maps maps;
	int error;

	maps_open(&maps, pid);
	while (!found && maps_next(&maps)) {
		const char *file = maps.path ? strrchr(maps.path, '/') + 1 : "";

		found = is_beside(file);
		if (found)
			snprintf(name, BESIDE_SIZE, "%s", file);
	}
	error = maps_close(&maps);
	return found ? 1 : error;
}
