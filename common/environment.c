/* SPDX-License-Identifier: Apache-2.0 */
#include "common/environment.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

struct kept {
	struct kept *next;
	char text[]; /* NAME=VALUE */
};

static struct kept *kept; /* the latest first; none is ever taken out */

/* The one of the variable that the first @len bytes of @text name. */
static struct kept *find(const char *text, size_t len)
{
	struct kept *k = __atomic_load_n(&kept, __ATOMIC_ACQUIRE);

	while (k && (strncmp(k->text, text, len) != 0 || k->text[len] != '='))
		k = k->next;
	return k;
}

static void keep(const char *text)
{
	const struct kept *old = find(text, strcspn(text, "="));
	size_t size = strlen(text) + 1;
	struct kept *k = old && !strcmp(old->text, text) ? NULL : malloc(sizeof(*k) + size);

	if (!k)
		return;
	memcpy(k->text, text, size);
	k->next = __atomic_load_n(&kept, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&kept, &k->next, k, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

void environment_keep(void)
{
	size_t count = 0;

	while (environ && environ[count] && !getauxval(AT_SECURE))
		count++;
	/* Of two with a name, getenv(3) finds the first. */
	while (count--)
		keep(environ[count]);
}

const char *environment_get(const char *name)
{
	const struct kept *k = find(name, strlen(name));

	if (!__atomic_load_n(&kept, __ATOMIC_ACQUIRE))
		return secure_getenv(name);
	return k ? strchr(k->text, '=') + 1 : NULL;
}
