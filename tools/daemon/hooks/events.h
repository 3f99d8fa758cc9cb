/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_EVENTS_H
#define CUDAW_EVENTS_H
/* The last events of the daemon, oldest first. The older ones are forgotten. */
#include "common/protocol/rundir.h"

#include <stdint.h>
#include <sys/types.h>

/* Their kinds. */
#define EVENTS_MAP(X) \
	X("joined")   \
	X("left")     \
	X("gives")    \
	X("gave")     \
	X("runs")     \
	X("failed")   \
	X("grows")    \
	X("refused")  \
	X("asked")    \
	X("ends")     \
	X("silent")   \
	X("rescued")  \
	X("released") \
	X("kept")     \
	X("unfit")    \
	X("dropped")  \
	X("limited")  \
	X("set")      \
	X("rejected") \
	X("drained")  \
	X("undrained")

#define EVENTS_KEPT 1024
#define EVENT_TEXT  160

struct event {
	uint64_t number;  /* from 1 */
	uint64_t unix_ms; /* when */
	const char *kind; /* one word */
	uid_t uid;        /* of the member */
	pid_t pid;        /* as the daemon sees it; 0: not known */
	char id[RUNDIR_ID_SIZE];
	char name[65]; /* empty: none */
	char text[EVENT_TEXT];
};

/* A member, as events name it. */
struct event_subject {
	uid_t uid;
	pid_t pid;
	const char *id, *name;
};

/* Note an event of the kind @kind, a string constant. */
void events_add(const char *kind, const struct event_subject *of, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The first kept event whose number is greater than @after; NULL: there is none. */
const struct event *events_next(uint64_t after);

#endif
