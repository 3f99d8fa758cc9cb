/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of live handles, by which a handle from the program is checked before it is used. */
#include "tests/sim/sim.h"

void object_add(enum sim_kind kind, struct sim_object *obj)
{
	obj->next = sim.objects[kind];
	obj->link = &sim.objects[kind];
	if (obj->next)
		obj->next->link = &obj->next;
	sim.objects[kind] = obj;
}

void object_remove(struct sim_object *obj)
{
	*obj->link = obj->next;
	if (obj->next)
		obj->next->link = obj->link;
	obj->link = NULL;
}

bool object_known(enum sim_kind kind, const void *handle)
{
	for (struct sim_object *o = sim.objects[kind]; o; o = o->next)
		if (o == handle)
			return true;
	return false;
}
