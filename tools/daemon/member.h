/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMBER_H
#define CUDAW_MEMBER_H
/*
 * What the files of members.h share: members.c has the members and what they say, members_orders.c what is decided
 * and goes to them.
 */
#include "tools/daemon/hooks/events.h"
#include "tools/daemon/members.h"
#include "tools/daemon/parties/parties.h"

extern struct parties *members_parties;
extern struct member members_all[CONNECTIONS_MAX];

/* The member with this number in parties.h, or NULL. */
struct member *member_find(uint32_t id);

static inline struct event_subject member_subject(const struct member *m)
{
	return (struct event_subject){.uid = m->connection->uid,
				      .pid = m->connection->pid,
				      .id = m->job,
				      .name = m->name};
}

/* An event of the member @m: a format and its arguments. */
#define member_note(kind, m, ...)                                        \
	do {                                                             \
		const struct event_subject subject_ = member_subject(m); \
                                                                         \
		events_add(kind, &subject_, __VA_ARGS__);                \
	} while (0)

/* What NVML showed some time ago counts no longer: members may have come to have more since. */
void members_forget_shown(int gpu, double now);

#endif
