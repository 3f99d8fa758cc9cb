/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

int maps_open(struct maps *maps, pid_t pid)
{
	char path[64] = "/proc/self/maps";

	*maps = (struct maps){0};
	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps->file = fopen(path, "re");
	maps->error = maps->file ? 0 : -errno;
	return maps->error;
}

bool maps_next(struct maps *maps)
{
	unsigned int major, minor;
	int at = 0;

	while (!maps->error && getline(&maps->line, &maps->room, maps->file) > 0) {
		maps->line[strcspn(maps->line, "\n")] = '\0';
		if (sscanf(maps->line, "%lx-%lx %4s %lx %x:%x %lu %n", &maps->begin, &maps->end,
			   maps->rights, &maps->offset, &major, &minor, &maps->inode, &at) != 7)
			continue;
		maps->device = makedev(major, minor);
		maps->path = maps->line[at] == '/' ? maps->line + at : NULL;
		return true;
	}
	if (!maps->error && !feof(maps->file))
		maps->error = -errno;
	return false;
}

int maps_close(struct maps *maps)
{
	if (maps->file)
		fclose(maps->file);
	free(maps->line);
	return maps->error;
}

int maps_find(pid_t pid, const char *prefix, char path[PATH_MAX])
{
	struct maps maps;
	int found = 0, err;

	maps_open(&maps, pid);
	while (!found && maps_next(&maps)) {
		const char *name = maps.path;

		if (name && *prefix != '/')
			name = strrchr(name, '/') + 1;
		found = name && !strncmp(name, prefix, strlen(prefix));
		if (found)
			snprintf(path, PATH_MAX, "%s", maps.path);
	}
	err = maps_close(&maps);
	return found ? found : err;
}
