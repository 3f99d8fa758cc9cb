/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processes/maps.h"

#include "common/system/shortage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

int maps_open(struct maps *maps, pid_t pid)
{
	char path[64] = "/proc/thread-self/maps";
	int tries = 0;

	*maps = (struct maps){0};
	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	do
		maps->file = fopen(path, "re");
	while (!maps->file && shortage_wait(-errno, &tries));
	maps->error = maps->file ? 0 : -errno;
	return maps->error;
}

/* The number at *@at, and the character @end behind it, which *@at then points behind. */
static bool take_number(char **at, int base, char end, unsigned long *value)
{
	char *from = *at;

	*value = strtoul(from, at, base);
	return *at > from && *(*at)++ == end;
}

/* "cudaw ps" reads thousands of these lines, and sscanf(3) takes longer for each than the kernel does to write it. */
static bool parse(struct maps *maps)
{
	unsigned long major, minor;
	char *at = maps->line;

	if (!take_number(&at, 16, '-', &maps->begin) || !take_number(&at, 16, ' ', &maps->end) ||
	    maps->end <= maps->begin || strlen(at) <= sizeof(maps->rights))
		return false;
	memcpy(maps->rights, at, sizeof(maps->rights) - 1);
	at += sizeof(maps->rights);
	if (!take_number(&at, 16, ' ', &maps->offset) || !take_number(&at, 16, ':', &major) ||
	    !take_number(&at, 16, ' ', &minor) || !take_number(&at, 10, ' ', &maps->inode))
		return false;
	maps->device = makedev(major, minor);
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

bool maps_is_former(const char *path)
{
	size_t length = strlen(path), suffix = strlen(MAPS_FORMER);

	return length > suffix && !strcmp(path + length - suffix, MAPS_FORMER);
}
