/* SPDX-License-Identifier: Apache-2.0 */
#include "common/environment.h"
#include "common/protocol/quota.h"
#include "common/settings.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NAME(id, name, ...) name,
static const char *const names[] = {SETTINGS_MAP(NAME) "LD_LIBRARY_PATH", "VIRTUAL_ENV"};

#define NAMES     (sizeof(names) / sizeof(*names))
#define VARIABLES (NAMES + QUOTA_VARIABLES)

static const char *values[VARIABLES]; /* NULL: it was not set */
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

static void keep(const char **value, const char *now)
{
	const char *old = __atomic_load_n(value, __ATOMIC_ACQUIRE);

	if (!now || (old && !strcmp(old, now)))
		return;
	now = copy(now);
	if (now)
		__atomic_store_n(value, now, __ATOMIC_RELEASE);
}

void environment_keep(void)
{
	char limit[QUOTA_NAME_SIZE];

	for (size_t i = 0; i < VARIABLES; i++)
		keep(&values[i], secure_getenv(name_of(i, limit)));
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
