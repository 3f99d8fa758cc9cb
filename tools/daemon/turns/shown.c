/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/turns/shown.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

static bool is_seen(pid_t pid)
{
	return !kill(pid, 0) || errno != ESRCH;
}

static size_t take(size_t *from, size_t bytes)
{
	size_t taken = bytes < *from ? bytes : *from;

	*from -= taken;
	return taken;
}

void shown_begin(struct shown *shown, const struct sample *sample)
{
	shown->rest = sample->total - sample->free;
	shown->count = 0;
	for (int i = 0; i < sample->nholders; i++) {
		/* It may be a member whose PID is another one here. */
		if (!is_seen(sample->holders[i].pid))
			continue;
		shown->left[shown->count++] = sample->holders[i];
		take(&shown->rest, sample->holders[i].bytes);
	}
}

size_t shown_bound(struct shown *shown, pid_t pid, size_t mapped)
{
	size_t *left = &shown->rest, bound;

	for (int i = 0; pid > 0 && i < shown->count; i++)
		if (shown->left[i].pid == pid)
			left = &shown->left[i].bytes;
	bound = *left;
	take(left, mapped);
	return bound;
}
