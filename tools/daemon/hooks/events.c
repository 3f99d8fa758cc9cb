/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/hooks/events.h"
#include "common/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct event ring[EVENTS_KEPT];
static uint64_t last; /* the number of the last one */

void events_add(const char *kind, const struct event_subject *of, const char *fmt, ...)
{
	struct event *event = &ring[++last % EVENTS_KEPT];
	va_list ap;

	*event = (struct event){.number = last,
				.unix_ms = clock_unix_ms(),
				.kind = kind,
				.uid = of->uid,
				.pid = of->pid};
	snprintf(event->id, sizeof(event->id), "%s", of->id);
	snprintf(event->name, sizeof(event->name), "%s", of->name);
	va_start(ap, fmt);
	vsnprintf(event->text, sizeof(event->text), fmt, ap);
	va_end(ap);
}

const struct event *events_next(uint64_t after)
{
	uint64_t first = last > EVENTS_KEPT ? last - EVENTS_KEPT + 1 : 1;
	uint64_t number = after + 1 < first ? first : after + 1;

	return number <= last ? &ring[number % EVENTS_KEPT] : NULL;
}
