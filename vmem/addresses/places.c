/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/addresses/places.h"
#include "common/system/forks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

FORKS_LOCK(lock);
static struct place *places; /* under lock, like the next two */
static size_t count, room;

/* How many places begin at or below @real. */
static size_t up_to(CUdeviceptr real)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (places[mid].real <= real)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int make_room(void)
{
	size_t more = room ? 2 * room : 64;
	struct place *larger;

	if (count < room)
		return 0;
	larger = realloc(places, more * sizeof(*places));
	if (!larger)
		return -ENOMEM;
	places = larger;
	room = more;
	return 0;
}

int places_add(CUdeviceptr real, CUdeviceptr start, size_t size)
{
	size_t at;
	int ret;

	pthread_mutex_lock(&lock);
	ret = make_room();
	if (!ret) {
		at = up_to(real);
		memmove(&places[at + 1], &places[at], (count - at) * sizeof(*places));
		places[at] = (struct place){real, start, size};
		count++;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void places_remove(CUdeviceptr real, CUdeviceptr start)
{
	size_t at;

	pthread_mutex_lock(&lock);
	at = up_to(real);
	while (at && places[at - 1].real == real && places[at - 1].start != start)
		at--;
	if (at && places[at - 1].real == real) {
		count--;
		memmove(&places[at - 1], &places[at], (count - at + 1) * sizeof(*places));
	}
	pthread_mutex_unlock(&lock);
}

size_t places_near(CUdeviceptr real, size_t reach, struct place *near)
{
	size_t at, found = 0;

	pthread_mutex_lock(&lock);
	at = up_to(real);
	for (size_t i = at > 2 ? at - 2 : 0; i < count && i <= at; i++)
		if (real + reach - places[i].real < places[i].size + 2 * reach)
			near[found++] = places[i];
	pthread_mutex_unlock(&lock);
	return found;
}
