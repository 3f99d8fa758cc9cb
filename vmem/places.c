/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/places.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct place {
	CUdeviceptr real, start;
	size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place *places; /* under lock, as the next two */
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

void places_remove(CUdeviceptr real)
{
	size_t at;

	pthread_mutex_lock(&lock);
	at = up_to(real);
	if (at && places[at - 1].real == real) {
		count--;
		memmove(&places[at - 1], &places[at], (count - at + 1) * sizeof(*places));
	}
	pthread_mutex_unlock(&lock);
}

bool places_find(CUdeviceptr real, CUdeviceptr *ptr)
{
	bool found;
	size_t at;

	pthread_mutex_lock(&lock);
	at = up_to(real);
	found = at && real - places[at - 1].real <= places[at - 1].size;
	if (found)
		*ptr = places[at - 1].start + (real - places[at - 1].real);
	pthread_mutex_unlock(&lock);
	return found;
}

bool places_end_at(CUdeviceptr real, CUdeviceptr *end)
{
	const struct place *before;
	bool found;
	size_t at;

	pthread_mutex_lock(&lock);
	at = up_to(real);
	found = at > 1 && places[at - 1].real == real;
	if (found) {
		before = &places[at - 2];
		found = before->real + before->size == real;
		*end = before->start + before->size;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
