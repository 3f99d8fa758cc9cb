/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/retired.h"

#include "common/system/forks.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

FORKS_LOCK(lock);
static unsigned long long *ids; /* under lock */
static size_t count, room;      /* under lock; count also read without */

static size_t find(unsigned long long id)
{
	size_t i = 0;

	while (i < count && ids[i] != id)
		i++;
	return i;
}

static bool make_room(void)
{
	size_t more = room ? 2 * room : 64;
	unsigned long long *grown;

	if (count < room)
		return true;
	grown = reallocarray(ids, more, sizeof(*ids));
	if (!grown)
		return false;
	ids = grown;
	room = more;
	return true;
}

bool retired_add(unsigned long long id)
{
	bool added;

	pthread_mutex_lock(&lock);
	added = make_room();
	if (added) {
		ids[count] = id;
		__atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return added;
}

void retired_remove(unsigned long long id)
{
	size_t i;

	pthread_mutex_lock(&lock);
	i = find(id);
	if (i < count) {
		ids[i] = ids[count - 1];
		__atomic_store_n(&count, count - 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
}

bool retired_has(unsigned long long id)
{
	bool found;

	if (!__atomic_load_n(&count, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&lock);
	found = find(id) < count;
	pthread_mutex_unlock(&lock);
	return found;
}
