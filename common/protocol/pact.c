/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/pact.h"
#include "common/clock.h"
#include "common/patience.h"
#include "common/system/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define FIRST_MS \
	100 /* the longest wait before the first further round; twice as long before each later one */
#define DOUBLED 8 /* so often */

static const char magic[8] = "cudawp1";

struct need {
	char gpu[48];
	uint64_t bytes;
};

struct slot {
	uint32_t beat; /* counts up while the member lives */
	uint32_t says; /* in which round, and what */
	struct need needs[GPU_MAX];
};

/* What is in the file. All processes write it: by atomic operations, except the names of GPUs. */
struct shared {
	char magic[8];
	uint64_t born; /* CLOCK_MONOTONIC, in ns */
	uint32_t by;   /* a PID: between two that were born at once */
	uint32_t members, joined;
	uint32_t word; /* the round and the phase */
	struct slot slots[];
};

/* How long the beat of a member has not changed. */
struct seen {
	uint32_t beat;
	double quiet_ms;
};

struct pact {
	struct shared *shared;
	size_t size;
	uint32_t members; /* a copy: others can write the file */
	size_t self;      /* SIZE_MAX: no member */
	uint32_t round;   /* atomic */
	double due_ms;

	/* The watcher's. */
	struct patience watched;
	struct seen *seen;
};

#define PHASE_BITS 2
#define SAYS_BITS  3

static uint32_t word_of(uint32_t round, enum pact_phase phase)
{
	return round << PHASE_BITS | phase;
}

static enum pact_phase phase_of(uint32_t word)
{
	return word & ((1 << PHASE_BITS) - 1);
}

static uint32_t round_of(uint32_t word)
{
	return word >> PHASE_BITS;
}

static uint32_t read_word(const struct pact *pact)
{
	return __atomic_load_n(&pact->shared->word, __ATOMIC_SEQ_CST);
}

static bool change(struct pact *pact, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&pact->shared->word, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static size_t size_of(size_t members)
{
	return sizeof(struct shared) + members * sizeof(struct slot);
}

int pact_create(size_t members)
{
	struct shared head = {.by = (uint32_t)getpid(), .members = (uint32_t)members};
	struct timespec now;
	int fd = memfd_make("cudaw-pact"), error = 0;

	if (fd < 0)
		return -errno;
	clock_gettime(CLOCK_MONOTONIC, &now);
	head.born = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	memcpy(head.magic, magic, sizeof(magic));
	/* A member must not die of a file that others have cut. */
	if (ftruncate(fd, (off_t)size_of(members)) || fcntl(fd, F_ADD_SEALS, SEALS))
		error = -errno;
	else if (pwrite(fd, &head, sizeof(head), 0) != sizeof(head))
		error = -EIO;
	if (!error)
		return fd;
	close(fd);
	return error;
}

/* The size of the file @fd, if that may be a pact; else 0. */
static size_t file_size(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) ||
	    st.st_size < (off_t)sizeof(struct shared))
		return 0;
	return (size_t)st.st_size;
}

struct pact *pact_open(int fd)
{
	size_t size = file_size(fd);
	struct pact *pact;

	if (!size) {
		errno = EINVAL;
		return NULL;
	}
	pact = calloc(1, sizeof(*pact));
	if (!pact)
		return NULL;
	*pact = (struct pact){.size = size, .self = SIZE_MAX};
	pact->shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (pact->shared == MAP_FAILED)
		goto err_free;
	/* The children of a fork are no members. */
	madvise(pact->shared, size, MADV_DONTFORK);
	pact->members = pact->shared->members;
	errno = EINVAL;
	if (memcmp(pact->shared->magic, magic, sizeof(magic)) || size_of(pact->members) != size)
		goto err_unmap;
	pact->seen = calloc(pact->members, sizeof(*pact->seen));
	if (pact->seen || !pact->members)
		return pact;
err_unmap:
	munmap(pact->shared, size);
err_free:
	free(pact);
	return NULL;
}

void pact_close(struct pact *pact)
{
	if (!pact)
		return;
	munmap(pact->shared, pact->size);
	free(pact->seen);
	free(pact);
}

bool pact_is_same(const struct pact *one, const struct pact *other)
{
	return one->shared->born == other->shared->born && one->shared->by == other->shared->by;
}

bool pact_is_later(const struct pact *one, const struct pact *other)
{
	const struct shared *a = one->shared, *b = other->shared;

	return a->born != b->born ? a->born > b->born : a->by > b->by;
}

bool pact_join(struct pact *pact)
{
	uint32_t self = __atomic_fetch_add(&pact->shared->joined, 1, __ATOMIC_SEQ_CST);

	if (self >= pact->members)
		return false;
	pact->self = self;
	return true;
}

static bool all_joined(const struct pact *pact)
{
	return __atomic_load_n(&pact->shared->joined, __ATOMIC_SEQ_CST) >= pact->members;
}

/* What a member says, in @round; PACT_NOTHING if it has not said anything since that began. */
static enum pact_says says_of(const struct pact *pact, size_t member, uint32_t round)
{
	uint32_t says = __atomic_load_n(&pact->shared->slots[member].says, __ATOMIC_SEQ_CST);
	enum pact_says what = says & ((1 << SAYS_BITS) - 1);

	return what == PACT_LEFT || says >> SAYS_BITS == round ? what : PACT_NOTHING;
}

static bool all_say(const struct pact *pact, uint32_t round, enum pact_says wanted)
{
	if (!all_joined(pact))
		return false;
	for (size_t i = 0; i < pact->members; i++) {
		enum pact_says what = says_of(pact, i, round);

		if (what != wanted && what != PACT_LEFT)
			return false;
	}
	return true;
}

enum pact_phase pact_look(struct pact *pact)
{
	uint32_t word = read_word(pact), round = round_of(word);

	if (phase_of(word) == PACT_SEEK && all_say(pact, round, PACT_ROOM))
		change(pact, word, word_of(round, PACT_TAKE));
	else if (phase_of(word) == PACT_TAKE && all_say(pact, round, PACT_WHOLE))
		change(pact, word, word_of(round, PACT_GO));
	return phase_of(read_word(pact));
}

bool pact_stop(struct pact *pact)
{
	for (;;) {
		uint32_t word = read_word(pact);

		if (phase_of(word) >= PACT_GO)
			return phase_of(word) == PACT_STOP;
		change(pact, word, word_of(round_of(word), PACT_STOP));
	}
}

/* True if a member has not been heard of for too long. */
static bool is_silent(struct pact *pact, size_t member, double passed_ms)
{
	struct seen *seen = &pact->seen[member];
	uint32_t beat = __atomic_load_n(&pact->shared->slots[member].beat, __ATOMIC_RELAXED);

	if (member == pact->self || says_of(pact, member, UINT32_MAX) == PACT_LEFT ||
	    beat != seen->beat)
		*seen = (struct seen){.beat = beat};
	else
		seen->quiet_ms += passed_ms;
	return seen->quiet_ms > PACT_SILENCE_MS;
}

void pact_beat(struct pact *pact)
{
	__atomic_fetch_add(&pact->shared->slots[pact->self].beat, 1, __ATOMIC_RELAXED);
}

void pact_watch(struct pact *pact)
{
	double passed_ms = -pact->watched.waited_ms;

	pact_beat(pact);
	passed_ms += patience_ms(&pact->watched);
	for (size_t i = 0; i < pact->members; i++)
		if (is_silent(pact, i, passed_ms))
			pact_stop(pact);
}

void pact_set_need(struct pact *pact, size_t dev, const char *gpu, uint64_t bytes)
{
	struct need *need = &pact->shared->slots[pact->self].needs[dev];

	if (!need->gpu[0])
		snprintf(need->gpu, sizeof(need->gpu), "%s", gpu);
	__atomic_store_n(&need->bytes, bytes, __ATOMIC_SEQ_CST);
}

uint64_t pact_others_need(const struct pact *pact, const char *gpu)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < pact->members; i++) {
		const struct slot *slot = &pact->shared->slots[i];

		if (i == pact->self || says_of(pact, i, pact->round) == PACT_LEFT)
			continue;
		for (size_t dev = 0; dev < GPU_MAX; dev++)
			if (!strncmp(slot->needs[dev].gpu, gpu, sizeof(slot->needs[dev].gpu)))
				sum += __atomic_load_n(&slot->needs[dev].bytes, __ATOMIC_SEQ_CST);
	}
	return sum;
}

void pact_begin_round(struct pact *pact)
{
	uint32_t round = round_of(read_word(pact)), most;
	struct timespec now;

	if (round == pact->round)
		return;
	__atomic_store_n(&pact->round, round, __ATOMIC_SEQ_CST);
	if (pact->self)
		return;
	most = FIRST_MS << (round < DOUBLED ? round : DOUBLED);
	clock_gettime(CLOCK_MONOTONIC, &now);
	pact->due_ms = clock_ms() + (uint32_t)(now.tv_nsec / 1000) % most;
}

void pact_say(struct pact *pact, enum pact_says says)
{
	uint32_t round = __atomic_load_n(&pact->round, __ATOMIC_SEQ_CST);
	enum pact_says before = says_of(pact, pact->self, round);

	/* Two that lack memory, and try again now and then, would keep each other from calling back. */
	if (says == PACT_TAKES && before == PACT_LACKS)
		return;
	/* The others wait for its first attempt, which was not possible yet. */
	if (says == PACT_LACKS && before != PACT_TAKES)
		return;
	__atomic_store_n(&pact->shared->slots[pact->self].says, round << SAYS_BITS | says,
			 __ATOMIC_SEQ_CST);
}

bool pact_is_called_back(const struct pact *pact)
{
	uint32_t word = read_word(pact);

	return phase_of(word) <= PACT_TAKE &&
	       round_of(word) != __atomic_load_n(&pact->round, __ATOMIC_SEQ_CST);
}

bool pact_is_known(const struct pact *pact)
{
	for (size_t i = 0; i < pact->members; i++)
		if (!__atomic_load_n(&pact->shared->slots[i].says, __ATOMIC_SEQ_CST))
			return false;
	return true;
}

bool pact_is_ended(const struct pact *pact)
{
	return phase_of(read_word(pact)) == PACT_STOP || pact_is_called_back(pact);
}

bool pact_is_due(const struct pact *pact, double now_ms)
{
	return now_ms >= pact->due_ms;
}

void pact_call_back(struct pact *pact)
{
	change(pact, word_of(pact->round, PACT_TAKE), word_of(pact->round + 1, PACT_SEEK));
}

bool pact_others_take(const struct pact *pact)
{
	bool has_tried = says_of(pact, pact->self, pact->round) != PACT_ROOM;

	for (size_t i = 0; i < pact->members; i++) {
		enum pact_says what = says_of(pact, i, pact->round);

		if (i != pact->self && (what == PACT_TAKES || (what == PACT_ROOM && has_tried)))
			return true;
	}
	return false;
}
