/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocations are in an array, sorted by address. Each has a list of stretches: neighbouring
 * pages with the same hints, in the order of their addresses. Without hints the list is empty.
 */
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "wrapper/hooks/managed/managed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096UL

/* From the end of the stretch before it, or from 0, up to the offset @end in the allocation. */
struct stretch {
	size_t end;
	struct managed_hints hints;
	struct stretch *next;
};

struct entry {
	struct managed_info info;
	bool ending;
	struct stretch *stretches;
};

FORKS_LOCK(lock);
static struct entry **entries; /* under lock, as the next one */
static size_t room;
static size_t count; /* under lock; also read without */

static CUdeviceptr end_of(const struct entry *e)
{
	return e->info.start + e->info.size;
}

/* The index of the first allocation that ends behind @ptr. */
static size_t index_locked(CUdeviceptr ptr)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (end_of(entries[mid]) > ptr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static struct entry *find_locked(CUdeviceptr ptr)
{
	size_t i = index_locked(ptr);

	return i < count && entries[i]->info.start <= ptr ? entries[i] : NULL;
}

static bool make_room_locked(void)
{
	size_t more = room ? 2 * room : 64;
	struct entry **larger;

	if (count < room)
		return true;
	larger = realloc(entries, more * sizeof(*larger));
	if (!larger)
		return false;
	entries = larger;
	room = more;
	return true;
}

static void insert_locked(struct entry *e)
{
	size_t i = index_locked(e->info.start);

	memmove(&entries[i + 1], &entries[i], (count - i) * sizeof(*entries));
	entries[i] = e;
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
}

static void remove_locked(size_t i)
{
	struct entry *e = entries[i];
	struct stretch *next;

	memmove(&entries[i], &entries[i + 1], (count - i - 1) * sizeof(*entries));
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	for (struct stretch *s = e->stretches; s; s = next) {
		next = s->next;
		free(s);
	}
	free(e);
}

static void remove_overlapped_locked(CUdeviceptr start, size_t size)
{
	size_t i = index_locked(start);

	while (i < count && entries[i]->info.start < start + size)
		remove_locked(i);
}

bool managed_add(const struct managed_info *info)
{
	struct entry *e = calloc(1, sizeof(*e));
	bool added;

	if (!e)
		return false;
	e->info = *info;
	pthread_mutex_lock(&lock);
	remove_overlapped_locked(info->start, info->size);
	added = make_room_locked();
	if (added)
		insert_locked(e);
	pthread_mutex_unlock(&lock);
	if (!added)
		free(e);
	return added;
}

void managed_forget(CUdeviceptr start, size_t size)
{
	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	remove_overlapped_locked(start, size);
	pthread_mutex_unlock(&lock);
}

bool managed_ending(CUdeviceptr ptr)
{
	struct entry *e;
	bool found;

	pthread_mutex_lock(&lock);
	e = find_locked(ptr);
	found = e && e->info.start == ptr && !e->ending;
	if (found)
		e->ending = true;
	pthread_mutex_unlock(&lock);
	return found;
}

void managed_ended(CUdeviceptr ptr, bool gone)
{
	struct entry *e;

	pthread_mutex_lock(&lock);
	e = find_locked(ptr);
	if (e && e->ending && gone)
		remove_locked(index_locked(ptr));
	else if (e)
		e->ending = false;
	pthread_mutex_unlock(&lock);
}

bool managed_lookup(CUdeviceptr ptr, struct managed_info *info)
{
	const struct entry *e;

	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&lock);
	e = find_locked(ptr);
	if (e && info)
		*info = e->info;
	pthread_mutex_unlock(&lock);
	return e;
}

static CUdeviceptr page_end(CUdeviceptr ptr)
{
	return (ptr + PAGE - 1) & ~(PAGE - 1);
}

static bool covers_locked(CUdeviceptr ptr, size_t size)
{
	CUdeviceptr at = ptr, end;

	if (!size || __builtin_add_overflow(ptr, size, &end) || !find_locked(ptr))
		return false;
	for (size_t i = index_locked(ptr); i < count && at < end; i++) {
		if (entries[i]->info.start > at)
			return false;
		at = page_end(end_of(entries[i]));
	}
	return at >= end;
}

bool managed_covers(CUdeviceptr ptr, size_t size)
{
	bool covered;

	pthread_mutex_lock(&lock);
	covered = covers_locked(ptr, size);
	pthread_mutex_unlock(&lock);
	return covered;
}

/* Let a stretch end at the offset @at. */
static CUresult split(struct entry *e, size_t at)
{
	struct stretch **s = &e->stretches, *fresh;
	size_t begin = 0;

	for (; *s && (*s)->end < at; s = &(*s)->next)
		begin = (*s)->end;
	if (at == begin || (*s && (*s)->end == at))
		return CUDA_SUCCESS;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (*s)
		fresh->hints = (*s)->hints;
	fresh->end = at;
	fresh->next = *s;
	*s = fresh;
	return CUDA_SUCCESS;
}

/* The part of the pages from @ptr to @end that belongs to @e, as offsets in it. */
static void part_of(const struct entry *e, CUdeviceptr ptr, CUdeviceptr end, size_t *from,
		    size_t *to)
{
	ptr &= ~(PAGE - 1);
	end = page_end(end);
	*from = ptr > e->info.start ? ptr - e->info.start : 0;
	*to = end < end_of(e) ? end - e->info.start : e->info.size;
}

static bool same_location(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && a->id == b->id;
}

static bool same(const struct managed_hints *a, const struct managed_hints *b)
{
	return a->read_mostly == b->read_mostly && a->accessed_by == b->accessed_by &&
	       same_location(&a->preferred, &b->preferred) &&
	       same_location(&a->prefetched, &b->prefetched);
}

/* Programs prefetch large memory piece by piece: the list has to stay short. */
static void merge(struct entry *e)
{
	struct stretch *s = e->stretches, *next;

	while (s && s->next) {
		next = s->next;
		if (!same(&s->hints, &next->hints)) {
			s = next;
			continue;
		}
		s->end = next->end;
		s->next = next->next;
		free(next);
	}
}

static CUresult change_entry(struct entry *e, size_t from, size_t to, managed_change_fn change,
			     const void *arg)
{
	CUresult result = split(e, e->info.size);

	if (!result)
		result = split(e, from);
	if (!result)
		result = split(e, to);
	if (result)
		return result;
	for (struct stretch *s = e->stretches; s && s->end <= to; s = s->next)
		if (s->end > from)
			change(&s->hints, arg);
	merge(e);
	return CUDA_SUCCESS;
}

CUresult managed_change(CUdeviceptr ptr, size_t size, managed_change_fn change, const void *arg)
{
	CUresult result;
	size_t from, to;

	pthread_mutex_lock(&lock);
	result = covers_locked(ptr, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = index_locked(ptr);
	     !result && i < count && entries[i]->info.start < ptr + size; i++) {
		part_of(entries[i], ptr, ptr + size, &from, &to);
		result = change_entry(entries[i], from, to, change, arg);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void common_location(CUmemLocation *both, const CUmemLocation *other)
{
	if (!same_location(both, other))
		*both = (CUmemLocation){0};
}

/* Reduce @both (*first: it is empty yet) to the hints that @other has, too. */
static void intersect(struct managed_hints *both, const struct managed_hints *other, bool *first)
{
	if (*first)
		*both = *other;
	*first = false;
	both->read_mostly &= other->read_mostly;
	both->accessed_by &= other->accessed_by;
	common_location(&both->preferred, &other->preferred);
	common_location(&both->prefetched, &other->prefetched);
}

static void common_of_entry(const struct entry *e, size_t from, size_t to,
			    struct managed_hints *hints, bool *first)
{
	static const struct managed_hints none;
	size_t begin = 0;

	if (!e->stretches)
		intersect(hints, &none, first);
	for (const struct stretch *s = e->stretches; s && begin < to; s = s->next) {
		if (s->end > from)
			intersect(hints, &s->hints, first);
		begin = s->end;
	}
}

CUresult managed_common(CUdeviceptr ptr, size_t size, struct managed_hints *hints)
{
	bool covered, first = true;
	size_t from, to;

	pthread_mutex_lock(&lock);
	covered = covers_locked(ptr, size);
	for (size_t i = index_locked(ptr);
	     covered && i < count && entries[i]->info.start < ptr + size; i++) {
		part_of(entries[i], ptr, ptr + size, &from, &to);
		common_of_entry(entries[i], from, to, hints, &first);
	}
	pthread_mutex_unlock(&lock);
	return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void context_ended(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i-- > 0;)
		if (entries[i]->info.ctx == ctx)
			remove_locked(i);
	pthread_mutex_unlock(&lock);
}
CONTEXT_GONE(context_ended);

static void forget_in_child(void)
{
	count = 0;
}
FORKS_CHILD(forget_in_child);
