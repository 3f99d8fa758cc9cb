/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/beside.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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
	char path[64], *line = NULL, *slash;
	size_t room = 0;
	int found = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return -errno;
	while (!found && getline(&line, &room, maps) > 0) {
		line[strcspn(line, "\n")] = '\0';
		slash = strrchr(line, '/');
		found = slash && is_beside(slash + 1);
		if (found)
			snprintf(name, BESIDE_SIZE, "%.*s", BESIDE_SIZE - 1, slash + 1);
	}
	if (!found && !feof(maps))
		found = -errno;
	free(line);
	fclose(maps);
	return found;
}
