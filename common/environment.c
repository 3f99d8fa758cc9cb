/* SPDX-License-Identifier: Apache-2.0 */
#include "common/environment.h"
#include "common/protocol/quota.h"
#include "common/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME(id, name, ...) name,
static const char *const names[] = {SETTINGS_MAP(NAME) "LD_LIBRARY_PATH", "VIRTUAL_ENV"};

#define KIND(id, name, kind, ...) kind,
static const enum setting_kind kinds[] = {SETTINGS_MAP(KIND)};

#define NAMES     (sizeof(names) / sizeof(*names))
#define VARIABLES (NAMES + QUOTA_VARIABLES)

static const char *found[VARIABLES];  /* what was there; NULL: nothing */
static const char *values[VARIABLES]; /* the same, or the path that it means */
static bool kept;

static const char *name_of(size_t i, char limit[QUOTA_NAME_SIZE])
{
	return i < NAMES ? names[i] : quota_variable_name((int)(i - NAMES), limit);
}

/* For good. There is room for most without malloc(3), which may fail; then NULL. */
static const char *copy(const char *text)
{
	static char room[16384];
	static size_t used;
	size_t len = strlen(text);
	size_t at = __atomic_fetch_add(&used, len + 1, __ATOMIC_RELAXED);
	char *to = at + len < sizeof(room) ? room + at : malloc(len + 1);

	if (to) {
		memcpy(to, text, len);
		to[len] = '\0';
	}
	return to;
}

const char *environment_from_here(enum setting_id id, const char *value, char path[PATH_MAX])
{
	enum setting_kind kind = kinds[id];
	size_t len;

	if ((kind != A_DISK_DIRECTORY && kind != A_FILE && kind != A_NEW_FILE) || !*value ||
	    *value == '/' || !getcwd(path, PATH_MAX))
		return value;
	len = strlen(path);
	return snprintf(path + len, PATH_MAX - len, "/%s", value) < (int)(PATH_MAX - len) ? path
											  : value;
}

static void keep(size_t i, const char *now)
{
	const char *old = __atomic_load_n(&found[i], __ATOMIC_ACQUIRE), *value;
	char path[PATH_MAX];

	if (!now || (old && !strcmp(old, now)))
		return;
	now = value = copy(now);
	/* The program may change its directory. */
	if (now && i < SETTINGS)
		value = environment_from_here((enum setting_id)i, now, path);
	if (value == path)
		value = copy(path);
	if (!value)
		return;
	__atomic_store_n(&values[i], value, __ATOMIC_RELEASE);
	__atomic_store_n(&found[i], now, __ATOMIC_RELEASE);
}

void environment_keep(void)
{
	char limit[QUOTA_NAME_SIZE];

	for (size_t i = 0; i < VARIABLES; i++)
		keep(i, secure_getenv(name_of(i, limit)));
	__atomic_store_n(&kept, true, __ATOMIC_RELEASE);
}

const char *environment_get(const char *name)
{
	char limit[QUOTA_NAME_SIZE];

	if (!__atomic_load_n(&kept, __ATOMIC_ACQUIRE))
		return secure_getenv(name);
	for (size_t i = 0; i < VARIABLES; i++)
		if (!strcmp(name, name_of(i, limit)))
			return __atomic_load_n(&values[i], __ATOMIC_ACQUIRE);
	return NULL;
}
