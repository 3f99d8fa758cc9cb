/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/directories.h"
#include "common/settings.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Without leading zeros, so that no two names mean the same user. */
static bool is_users(const char *name, uid_t *uid)
{
	const char *number = name + strlen(RUNDIR_PREFIX);
	unsigned long value;
	char *end;

	if (strncmp(name, RUNDIR_PREFIX, strlen(RUNDIR_PREFIX)) != 0 || *number < '0' ||
	    *number > '9' || (*number == '0' && number[1]))
		return false;
	value = strtoul(number, &end, 10);
	*uid = value;
	return !*end && value < UINT_MAX;
}

int directories_each(directories_take take, void *arg, bool *all, char path[PATH_MAX],
		     const char **why)
{
	uid_t user = geteuid();
	struct dirent *entry;
	DIR *stream;
	int err;

	*all = user == 0 && !setting_text(SETTING_RUNTIME_DIR);
	if (!*all) {
		err = rundir_path(user, path, PATH_MAX, why);
		if (!err)
			take(arg, path, user == 0 ? RUNDIR_ANYONE : user);
		return err;
	}
	stream = opendir(RUNDIR_TMP);
	while (stream && (entry = readdir(stream))) {
		if (!is_users(entry->d_name, &user))
			continue;
		snprintf(path, PATH_MAX, RUNDIR_TMP "/%s", entry->d_name);
		take(arg, path, user);
	}
	if (stream)
		closedir(stream);
	return 0;
}
