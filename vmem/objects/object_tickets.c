/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/internal.h"
#include "vmem/objects/objects_internal.h"

#include <stdlib.h>

#define TICKETS_MIN 8

static void forget_ticket(struct object *o, struct ticket **p)
{
	struct ticket *t = *p;

	*p = t->next;
	o->ntickets--;
	free(t);
}

bool object_has_ticket(struct object *o)
{
	while (o->tickets && !beacon_is_held(&o->tickets->beacon))
		forget_ticket(o, &o->tickets);
	return o->tickets;
}

/* So that an object which is exported again and again has at most twice the tickets that are held. */
static void make_room(struct object *o)
{
	struct ticket **p = &o->tickets;

	if (o->ntickets < o->tickets_max)
		return;
	while (*p)
		if (beacon_is_held(&(*p)->beacon))
			p = &(*p)->next;
		else
			forget_ticket(o, p);
	o->tickets_max = 2 * o->ntickets + TICKETS_MIN;
}

void object_add_ticket(struct object *o, struct ticket *ticket)
{
	make_room(o);
	ticket->next = o->tickets;
	o->tickets = ticket;
	o->ntickets++;
}
