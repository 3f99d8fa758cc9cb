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

/* The number at *@at, which then points behind the character that follows it. */
static unsigned long take_number(char **at, int base)
{
	unsigned long value = strtoul(*at, at, base);

	*at += **at != '\0';
	return value;
}

/* Not by sscanf(3), which takes longer than the kernel for the line, of thousands that each "cudaw ps" reads. */
static bool parse(struct maps *maps)
{
	char *at = maps->line;
	unsigned int major;

	maps->begin = take_number(&at, 16);
	maps->end = take_number(&at, 16);
	if (maps->end <= maps->begin || strlen(at) <= sizeof(maps->rights))
		return false;
	memcpy(maps->rights, at, sizeof(maps->rights) - 1);
	at += sizeof(maps->rights);
	maps->offset = take_number(&at, 16);
	major = (unsigned int)take_number(&at, 16);
	maps->device = makedev(major, take_number(&at, 16));
	maps->inode = take_number(&at, 10);
	at += strspn(at, " ");
	maps->path = *at == '/' ? at : NULL;
	return true;
}

bool maps_next(struct maps *maps)
{
	while (!maps->error && getline(&maps->line, &maps->room, maps->file) > 0) {
		maps->line[strcspn(maps->line, "\n")] = '\0';
		if (parse(maps))
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
