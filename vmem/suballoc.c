/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/suballoc.h"

#include "common/system/forks.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bins up to 16 units are exact; above, each power of two is split into this many. */
#define BIN_SPLIT_LOG 4
#define BIN_SPLIT     (1U << BIN_SPLIT_LOG)
#define PATIENCE      16 /* with blocks of the request's own bin that are too small */

/*
 * The members that slab_lookup() reads are atomic and apart from the rest. A lookup of an address
 * that is freed meanwhile so reads an old or a new value, and never a link.
 */
struct block {
	uint32_t units;
	uint32_t before; /* units of the block before this one; 0 in the first of the slab */
	uint32_t index;  /* of a free block: its first unit, by which it finds its slab */
	uint32_t size;
	uint64_t id;
	struct block *prev, *next; /* of a free block: its neighbours in the bin */
};

/* The heads lie behind the blocks. Only the records that are written take memory. */
struct slab {
	uint64_t start;
	uint32_t units;    /* 0 in a removed slab */
	uint32_t live;     /* allocations */
	uint32_t kept;     /* blocks, whose size is 0: no lookup finds them */
	size_t bytes;      /* of the live allocations, as asked for */
	struct slab *next; /* of a removed slab */
	struct block blocks[];
};

#define SIZES       5           /* of slabs */
#define RECORDS_MIN (4UL << 20) /* one mmap() makes records of this size, at least */
_Static_assert(SLAB_MAX == SLAB_MIN << (SIZES - 1), "sizes are powers of two");

/* Records of removed slabs, by the size of the slab. */
FORKS_LOCK(lock);
static struct slab *removed[SIZES];

static unsigned int log2_floor(uint32_t n)
{
	return 31 - (unsigned int)__builtin_clz(n);
}

static unsigned int bin_of(uint32_t units)
{
	unsigned int log;

	if (units < BIN_SPLIT)
		return units;
	log = log2_floor(units);
	return (log - BIN_SPLIT_LOG + 1) * BIN_SPLIT +
	       ((units >> (log - BIN_SPLIT_LOG)) & (BIN_SPLIT - 1));
}

static uint64_t *heads_of(const struct slab *slab, uint32_t units)
{
	return (uint64_t *)(slab->blocks + units);
}

static bool is_head(const struct slab *slab, uint32_t unit)
{
	const uint64_t *heads = heads_of(slab, slab->units);
	uint64_t word = __atomic_load_n(&heads[unit / 64], __ATOMIC_RELAXED);

	return word >> (unit % 64) & 1;
}

static void flip_head(struct slab *slab, uint32_t unit)
{
	uint64_t *word = &heads_of(slab, slab->units)[unit / 64];
	uint64_t bits = __atomic_load_n(word, __ATOMIC_RELAXED);

	/* Release: a lookup that sees the bit sees the size and the id. Writers are serialised. */
	__atomic_store_n(word, bits ^ 1UL << (unit % 64), __ATOMIC_RELEASE);
}

static void bin_insert(struct suballoc *sa, struct slab *slab, uint32_t unit)
{
	struct block *b = &slab->blocks[unit];
	unsigned int bin = bin_of(b->units);

	b->index = unit;
	b->prev = NULL;
	b->next = sa->bins[bin];
	if (b->next)
		b->next->prev = b;
	sa->bins[bin] = b;
	sa->nonempty[bin / 64] |= 1UL << (bin % 64);
}

static void bin_remove(struct suballoc *sa, struct block *b)
{
	unsigned int bin = bin_of(b->units);

	if (b->next)
		b->next->prev = b->prev;
	if (b->prev)
		b->prev->next = b->next;
	else
		sa->bins[bin] = b->next;
	if (!sa->bins[bin])
		sa->nonempty[bin / 64] &= ~(1UL << (bin % 64));
}

/* The first block of the first bin from @bin up that has any. */
static struct block *bin_first(const struct suballoc *sa, unsigned int bin)
{
	unsigned int i = bin / 64;
	uint64_t word;

	word = sa->nonempty[i] & ~0UL << (bin % 64);
	while (!word) {
		if (++i == sizeof(sa->nonempty) / sizeof(sa->nonempty[0]))
			return NULL;
		word = sa->nonempty[i];
	}
	return sa->bins[i * 64 + (unsigned int)__builtin_ctzl(word)];
}

/* A free block of @units at least: every block above the bin of @units has more. */
static struct block *block_find(const struct suballoc *sa, uint32_t units, size_t patience)
{
	unsigned int bin = bin_of(units);
	struct block *b;

	for (b = sa->bins[bin]; b && patience; b = b->next, patience--)
		if (b->units >= units)
			return b;
	return bin_first(sa, bin + 1);
}

/* Make [@unit, @unit + @units) one block, and tell the block behind it. */
static void set_units(struct slab *slab, uint32_t unit, uint32_t units)
{
	slab->blocks[unit].units = units;
	if (unit + units < slab->units)
		slab->blocks[unit + units].before = units;
}

/* Whole pages, since slab_put() drops them. */
static size_t record_bytes(uint32_t units)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = sizeof(struct slab) + units * sizeof(struct block) + units / 8;

	return (bytes + page - 1) / page * page;
}

static struct slab **removed_of(uint32_t units)
{
	return &removed[log2_floor(units) - log2_floor(SLAB_MIN / SUBALLOC_UNIT)];
}

/* Few mappings: the kernel limits their number. */
static void make_records(uint32_t units)
{
	size_t bytes = record_bytes(units), count = RECORDS_MIN / bytes + 1;
	char *mem = mmap(NULL, count * bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return;
	/* With huge pages the records of a slab of 2 MiB would be as large as the slab. */
	madvise(mem, count * bytes, MADV_NOHUGEPAGE);
	while (count--) {
		struct slab *slab = (struct slab *)(mem + count * bytes);

		slab->next = *removed_of(units);
		*removed_of(units) = slab;
	}
}

static struct slab *slab_get(uint32_t units)
{
	struct slab *slab;

	pthread_mutex_lock(&lock);
	if (!*removed_of(units))
		make_records(units);
	slab = *removed_of(units);
	if (slab)
		*removed_of(units) = slab->next;
	pthread_mutex_unlock(&lock);
	return slab;
}

static void slab_put(struct slab *slab)
{
	uint32_t units = slab->units;

	/* From here on the records read as zeros. Locked memory (mlockall) cannot be dropped. */
	if (madvise(slab, record_bytes(units), MADV_DONTNEED))
		memset(slab, 0, record_bytes(units));
	pthread_mutex_lock(&lock);
	slab->next = *removed_of(units);
	*removed_of(units) = slab;
	pthread_mutex_unlock(&lock);
}

struct slab *suballoc_add(struct suballoc *sa, uint64_t start, size_t size)
{
	struct slab *slab;

	assert(size >= SLAB_MIN && size <= SLAB_MAX && (size & (size - 1)) == 0);
	slab = slab_get((uint32_t)(size / SUBALLOC_UNIT));
	if (!slab)
		return NULL;
	slab->start = start;
	__atomic_store_n(&slab->units, (uint32_t)(size / SUBALLOC_UNIT), __ATOMIC_RELEASE);
	set_units(slab, 0, slab->units);
	bin_insert(sa, slab, 0);
	return slab;
}

void suballoc_remove(struct suballoc *sa, struct slab *slab)
{
	for (uint32_t unit = 0; unit < slab->units; unit += slab->blocks[unit].units)
		if (!is_head(slab, unit))
			bin_remove(sa, &slab->blocks[unit]);
	slab_put(slab);
}

/* Release: a lookup that sees the size sees the id. */
static void set_allocation(struct block *b, size_t size, uint64_t id)
{
	__atomic_store_n(&b->id, id, __ATOMIC_RELAXED);
	__atomic_store_n(&b->size, (uint32_t)size, __ATOMIC_RELEASE);
}

static struct slab *alloc(struct suballoc *sa, size_t size, uint64_t id, uint64_t *addr,
			  size_t patience)
{
	uint32_t units = (uint32_t)((size + sa->gap + SUBALLOC_UNIT - 1) / SUBALLOC_UNIT);
	struct block *b;
	struct slab *slab;
	uint32_t unit, rest;

	assert(size && size + sa->gap <= SLAB_MAX);
	b = block_find(sa, units, patience);
	if (!b)
		return NULL;
	bin_remove(sa, b);
	unit = b->index;
	slab = (struct slab *)((char *)(b - unit) - offsetof(struct slab, blocks));
	rest = b->units - units;
	if (rest) {
		set_units(slab, unit, units);
		set_units(slab, unit + units, rest);
		bin_insert(sa, slab, unit + units);
	}
	set_allocation(b, size, id);
	flip_head(slab, unit);
	slab->live++;
	slab->bytes += size;
	*addr = slab->start + unit * SUBALLOC_UNIT;
	return slab;
}

struct slab *suballoc_alloc(struct suballoc *sa, size_t size, uint64_t id, uint64_t *addr)
{
	return alloc(sa, size, id, addr, PATIENCE);
}

struct slab *suballoc_alloc_any(struct suballoc *sa, size_t size, uint64_t id, uint64_t *addr)
{
	return alloc(sa, size, id, addr, SIZE_MAX);
}

/* The block at @addr, live or kept; NULL: none starts there. */
static struct block *block_at(const struct slab *slab, uint64_t addr)
{
	uint64_t offset = addr - slab->start;
	uint32_t unit = (uint32_t)(offset / SUBALLOC_UNIT);

	if (offset % SUBALLOC_UNIT || offset / SUBALLOC_UNIT >= slab->units || !is_head(slab, unit))
		return NULL;
	return (struct block *)&slab->blocks[unit];
}

static size_t size_of(const struct block *b)
{
	return __atomic_load_n(&b->size, __ATOMIC_ACQUIRE);
}

size_t suballoc_free(struct suballoc *sa, struct slab *slab, uint64_t addr)
{
	struct block *b = block_at(slab, addr);
	uint32_t units, next, unit;
	size_t size = b ? size_of(b) : 0;

	if (!size)
		return 0;
	unit = (uint32_t)(b - slab->blocks);
	flip_head(slab, unit);
	slab->live--;
	slab->bytes -= size;

	units = slab->blocks[unit].units;
	next = unit + units;
	if (next < slab->units && !is_head(slab, next)) {
		bin_remove(sa, &slab->blocks[next]);
		units += slab->blocks[next].units;
	}
	if (unit && !is_head(slab, unit - slab->blocks[unit].before)) {
		unit -= slab->blocks[unit].before;
		bin_remove(sa, &slab->blocks[unit]);
		units += slab->blocks[unit].units;
	}
	set_units(slab, unit, units);
	bin_insert(sa, slab, unit);
	return size;
}

size_t suballoc_keep(struct slab *slab, uint64_t addr)
{
	struct block *b = block_at(slab, addr);
	size_t size = b ? size_of(b) : 0;

	if (!size)
		return 0;
	set_allocation(b, 0, 0);
	slab->live--;
	slab->bytes -= size;
	slab->kept++;
	return size;
}

size_t suballoc_room(const struct suballoc *sa, const struct slab *slab, uint64_t addr)
{
	const struct block *b = block_at(slab, addr);

	return b ? b->units * SUBALLOC_UNIT - sa->gap : 0;
}

bool suballoc_reuse(const struct suballoc *sa, struct slab *slab, uint64_t addr, size_t size,
		    uint64_t id)
{
	struct block *b = block_at(slab, addr);

	if (!b || size_of(b))
		return false;
	assert(size && size <= suballoc_room(sa, slab, addr));
	set_allocation(b, size, id);
	slab->live++;
	slab->bytes += size;
	slab->kept--;
	return true;
}

size_t slab_live(const struct slab *slab, size_t *bytes)
{
	if (bytes)
		*bytes = slab->bytes;
	return slab->live;
}

bool slab_is_free(const struct slab *slab)
{
	return !slab->live && !slab->kept;
}

bool slab_lookup(const struct slab *slab, uint64_t offset, struct suballoc_info *info)
{
	uint64_t unit = offset / SUBALLOC_UNIT;
	uint64_t i = unit / 64;
	uint64_t word, start;
	const uint64_t *heads;
	const struct block *b;
	uint32_t units;
	size_t size;

	/*
	 * The caller may hold a pointer that is freed meanwhile, and the slab may be removed: trust
	 * only the bounds. They are 0 or those of all slabs that have these records.
	 */
	units = __atomic_load_n(&slab->units, __ATOMIC_RELAXED);
	if (unit >= units)
		return false;
	heads = heads_of(slab, units);
	word = __atomic_load_n(&heads[i], __ATOMIC_ACQUIRE);
	word &= ~0UL >> (63 - unit % 64);
	while (!word) {
		if (!i--)
			return false;
		word = __atomic_load_n(&heads[i], __ATOMIC_ACQUIRE);
	}
	unit = i * 64 + 63 - (unsigned int)__builtin_clzl(word);
	start = unit * SUBALLOC_UNIT;
	b = &slab->blocks[unit];
	size = size_of(b);
	if (offset - start >= size)
		return false;
	info->offset = start;
	info->size = size;
	info->id = __atomic_load_n(&b->id, __ATOMIC_RELAXED);
	return true;
}

bool slab_overlaps(const struct slab *slab, uint64_t offset, size_t size)
{
	const uint64_t *heads = heads_of(slab, __atomic_load_n(&slab->units, __ATOMIC_RELAXED));
	struct suballoc_info info;
	uint64_t first = offset / SUBALLOC_UNIT / 64, last = (offset + size) / SUBALLOC_UNIT / 64;

	/* An allocation that starts inside, or one that starts before and reaches inside. */
	for (uint64_t i = first; i < last; i++)
		for (uint64_t word = __atomic_load_n(&heads[i], __ATOMIC_ACQUIRE); word;
		     word &= word - 1)
			if (size_of(&slab->blocks[i * 64 + (unsigned int)__builtin_ctzl(word)]))
				return true;
	return slab_lookup(slab, offset, &info);
}
