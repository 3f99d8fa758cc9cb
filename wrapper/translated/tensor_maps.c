/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/tensor_maps.h"
#include "wrapper/real.h"
#include "common/system/forks.h"
#include "vmem/addresses/translate.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define LOG_PREFIX "translated: "
#include "common/log.h"

#define NBUCKETS TENSOR_MAPS_MAX
#define MAP_SIZE sizeof(CUtensorMap)

/* The bytes of a map as the program has them, and as the driver gets them. */
enum side { OWN, NOW, SIDES };

/* As bytes: a CUtensorMap needs more alignment than malloc() gives. */
struct known_map {
	char map[SIDES][MAP_SIZE];
	CUdeviceptr ptr, real; /* the virtual address inside, and the real one in map[NOW] */
	struct known_map *chain[SIDES];
	struct known_map *prev, *next;
};

FORKS_LOCK(lock);
static struct known_map *oldest; /* the first of all; under lock, as are the next two */
static size_t count;
static struct known_map *buckets[SIDES][NBUCKETS];

static struct known_map **bucket(enum side side, const void *map)
{
	uint64_t words[MAP_SIZE / 8], hash = 0;

	memcpy(words, map, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15UL;
		hash ^= hash >> 32;
	}
	return &buckets[side][hash % NBUCKETS];
}

static bool is_empty(struct known_map *const *chain)
{
	return !__atomic_load_n(chain, __ATOMIC_RELAXED);
}

static void chain_add(struct known_map *k, enum side side)
{
	struct known_map **chain = bucket(side, k->map[side]);

	k->chain[side] = *chain;
	__atomic_store_n(chain, k, __ATOMIC_RELAXED);
}

static void chain_remove(struct known_map *k, enum side side)
{
	struct known_map **at = bucket(side, k->map[side]);

	while (*at != k)
		at = &(*at)->chain[side];
	__atomic_store_n(at, k->chain[side], __ATOMIC_RELAXED);
}

static void forget(struct known_map *k)
{
	for (enum side side = OWN; side < SIDES; side++)
		chain_remove(k, side);
	DL_DELETE(oldest, k);
	count--;
	free(k);
}

/* A map that the driver got before a move may have the same bytes as a current one. */
static struct known_map *find(struct known_map *const *chain, enum side side, const void *map)
{
	struct known_map *k = *chain;

	while (k && (memcmp(k->map[side], map, MAP_SIZE) ||
		     (side == NOW && k->real != translate(k->ptr))))
		k = k->chain[side];
	return k;
}

static void add(const void *map, CUdeviceptr ptr, CUdeviceptr real_ptr)
{
	struct known_map *k = malloc(sizeof(*k));

	if (!k) {
		pr_err("no host memory to follow a tensor map: it is wrong after a pause");
		return;
	}
	if (count == TENSOR_MAPS_MAX)
		forget(oldest);
	k->ptr = ptr;
	k->real = real_ptr;
	for (enum side side = OWN; side < SIDES; side++) {
		memcpy(k->map[side], map, MAP_SIZE);
		chain_add(k, side);
	}
	DL_APPEND(oldest, k);
	count++;
}

void tensor_maps_add(const CUtensorMap *map, CUdeviceptr ptr)
{
	CUdeviceptr real_ptr = translate(ptr);
	struct known_map **chain = bucket(OWN, map), *before;

	if (real_ptr == ptr && is_empty(chain))
		return;
	pthread_mutex_lock(&lock);
	before = find(chain, OWN, map);
	if (before)
		forget(before);
	if (real_ptr != ptr)
		add(map, ptr, real_ptr);
	pthread_mutex_unlock(&lock);
}

/* Copy the entry of the program's map at @own to *@found. */
static bool look_up(const void *own, struct known_map *found)
{
	struct known_map **chain = bucket(OWN, own), *k;

	if (is_empty(chain))
		return false;
	pthread_mutex_lock(&lock);
	k = find(chain, OWN, own);
	if (k)
		*found = *k;
	pthread_mutex_unlock(&lock);
	return k;
}

/* From now on the driver gets @now for the map of @copy, whose memory moved to @real_ptr. */
static void renew(const struct known_map *copy, const CUtensorMap *now, CUdeviceptr real_ptr)
{
	struct known_map *k;

	pthread_mutex_lock(&lock);
	k = find(bucket(OWN, copy->map[OWN]), OWN, copy->map[OWN]);
	if (k && k->ptr == copy->ptr) {
		chain_remove(k, NOW);
		memcpy(k->map[NOW], now, MAP_SIZE);
		k->real = real_ptr;
		chain_add(k, NOW);
	}
	pthread_mutex_unlock(&lock);
}

void tensor_maps_rewrite(char *value)
{
	CUdeviceptr real_ptr;
	struct known_map copy;
	CUtensorMap now;

	if (!look_up(value, &copy))
		return;
	memcpy(&now, copy.map[NOW], MAP_SIZE);
	real_ptr = translate(copy.ptr);
	if (copy.real != real_ptr) {
		if (real.cuTensorMapReplaceAddress(&now, (void *)real_ptr))
			return;
		renew(&copy, &now, real_ptr);
	}
	memcpy(value, &now, MAP_SIZE);
}

bool tensor_maps_rewrite_back(char *value)
{
	struct known_map **chain = bucket(NOW, value), *k;

	if (is_empty(chain))
		return false;
	pthread_mutex_lock(&lock);
	k = find(chain, NOW, value);
	if (k)
		memcpy(value, k->map[OWN], MAP_SIZE);
	pthread_mutex_unlock(&lock);
	return k;
}
