/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of live handles, by which a handle from the program is checked before it is used. With
 * CUDAW_SIM_STRICT the use of a stream or an event that was destroyed ends the process, as it may
 * with a real driver, which does not check; its address is remembered until it is another object's.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>

static struct {
	const void **handles;
	size_t count, room;
} destroyed;

static void forget(const void *handle)
{
	for (size_t i = 0; i < destroyed.count; i++)
		if (destroyed.handles[i] == handle)
			destroyed.handles[i--] = destroyed.handles[--destroyed.count];
}

static void remember(const void *handle)
{
	size_t room = destroyed.room ? 2 * destroyed.room : 64;
	const void **handles = destroyed.handles;

	if (destroyed.count == destroyed.room) {
		handles = realloc(handles, room * sizeof(*handles));
		if (!handles)
			return;
		destroyed.handles = handles;
		destroyed.room = room;
	}
	handles[destroyed.count++] = handle;
}

void object_add(enum sim_kind kind, struct sim_object *obj)
{
	if (sim.config.strict)
		forget(obj);
	obj->kind = kind;
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
	if (sim.config.strict && (obj->kind == KIND_STREAM || obj->kind == KIND_EVENT))
		remember(obj);
}

void object_misused(const char *what)
{
	fprintf(stderr, "sim: %s: %s that was destroyed\n", sim_thread.call, what);
	abort();
}

bool object_known(enum sim_kind kind, const void *handle)
{
	for (struct sim_object *o = sim.objects[kind]; o; o = o->next)
		if (o == handle)
			return true;
	if (kind != KIND_STREAM && kind != KIND_EVENT)
		return false;
	for (size_t i = 0; i < destroyed.count; i++)
		if (destroyed.handles[i] == handle)
			object_misused(kind == KIND_STREAM ? "a stream" : "an event");
	return false;
}
