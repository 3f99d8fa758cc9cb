/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/sharing/internal.h"
#include "common/system/forks.h"

#include <string.h>

struct sharing sharing = {.lock = PTHREAD_MUTEX_INITIALIZER, .patience = {.waited_ms = 1}};
FORKS_LOCK_IN(sharing, lock);

static bool same(const struct sharing_process *a, const struct sharing_process *b)
{
	return a->pid == b->pid && !memcmp(a->instance, b->instance, sizeof(a->instance));
}

bool sharing_lists(const struct sharing_process *list, size_t n, const struct sharing_process *one)
{
	for (size_t i = 0; i < n; i++)
		if (same(&list[i], one))
			return true;
	return false;
}
