/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gate/growth.h"
#include "common/clock.h"
#include "common/system/forks.h"
#include "common/system/threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK     4096  /* bytes, of slots that are added at once */
#define MOST_TOLD 4     /* of the waits on a GPU, and of those that are pinned: others come later */
#define QUICK_MS  2000  /* between two answers of a daemon that sees no lack */
#define VAIN_MS   10000 /* of such answers, until the allocation fails */
#define NAP_US    256000 /* between two of them, at most; the first are 1, 2, 4 ms apart */

/* The stage of a wait, in the lowest bits of a slot's word; the serial is above. */
enum stage { STAGE_ASKED, STAGE_TOLD, STAGE_ROOM, STAGE_REFUSED, STAGES };

static struct growth_slot {
	struct growth_slot *next;
	uint32_t word; /* 0: nobody waits */
	pid_t tid;     /* of the owner; 0: free */
	CUdevice dev;
	size_t bytes;
	bool pinned;
} * slots; /* none is ever taken out */

#define FOR_EACH_SLOT(s) \
	for (struct growth_slot *s = __atomic_load_n(&slots, __ATOMIC_ACQUIRE); s; s = s->next)

static uint32_t serials;
static void (*wake)(void); /* NULL: no allocation waits */

/* What the calling thread waits for. */
static __thread struct growth_slot *my_slot __attribute__((tls_model("initial-exec")));
static __thread uint32_t my_serial __attribute__((tls_model("initial-exec")));

static uint32_t word_of(uint32_t serial, enum stage stage)
{
	return serial * STAGES + stage;
}

static void futex(uint32_t *word, int op, uint32_t value)
{
	int saved = errno;

	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
	errno = saved;
}

void growth_begin(void (*call)(void))
{
	__atomic_store_n(&wake, call, __ATOMIC_RELEASE);
}

void growth_end(void)
{
	__atomic_store_n(&wake, NULL, __ATOMIC_SEQ_CST);
	growth_refuse_all();
}

bool growth_is_on(void)
{
	return __atomic_load_n(&wake, __ATOMIC_RELAXED) != NULL;
}

/* More slots, of which the first is the thread's own. NULL: there is no memory. */
static struct growth_slot *add_slots(pid_t self)
{
	struct growth_slot *chunk =
		mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct growth_slot *last = chunk, *next = __atomic_load_n(&slots, __ATOMIC_RELAXED);

	if (chunk == MAP_FAILED)
		return NULL;
	for (; last + 2 <= chunk + CHUNK / sizeof(*chunk); last++)
		last->next = last + 1;
	chunk->tid = self;
	do {
		last->next = next;
	} while (!__atomic_compare_exchange_n(&slots, &next, chunk, false, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
	return chunk;
}

/* The thread's own slot, if it left a wait; or one that nobody has; or a new one. NULL: there is no memory. */
static struct growth_slot *take_slot(pid_t self)
{
	int saved = errno;
	struct growth_slot *added;

	FOR_EACH_SLOT(s) {
		if (__atomic_load_n(&s->tid, __ATOMIC_ACQUIRE) == self)
			return s;
	}
	FOR_EACH_SLOT(s) {
		pid_t owner = __atomic_load_n(&s->tid, __ATOMIC_ACQUIRE);

		if ((!owner || threads_ended(owner)) &&
		    __atomic_compare_exchange_n(&s->tid, &owner, self, false, __ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED))
			return s;
	}
	added = add_slots(self);
	errno = saved;
	return added;
}

bool growth_ask(CUdevice dev, size_t bytes, bool pinned)
{
	void (*call)(void) = __atomic_load_n(&wake, __ATOMIC_SEQ_CST);
	uint32_t serial;
	struct growth_slot *s;

	s = call ? take_slot(gettid()) : NULL;
	if (!s)
		return false;
	do {
		serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED) & (UINT32_MAX / STAGES);
	} while (!serial);
	__atomic_store_n(&s->word, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&s->dev, dev, __ATOMIC_RELAXED);
	__atomic_store_n(&s->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&s->pinned, pinned, __ATOMIC_RELAXED);
	__atomic_store_n(&s->word, word_of(serial, STAGE_ASKED), __ATOMIC_SEQ_CST);
	my_slot = s;
	my_serial = serial;
	/* growth_end() may not have seen it. */
	if (!__atomic_load_n(&wake, __ATOMIC_SEQ_CST))
		growth_answer(serial, false);
	call();
	return true;
}

/* False: the allocation is refused. */
static bool await_answer(void)
{
	struct growth_slot *s = my_slot;
	const uint32_t serial = my_serial;
	uint32_t word = __atomic_load_n(&s->word, __ATOMIC_ACQUIRE);
	pid_t self = gettid();

	while (word == word_of(serial, STAGE_ASKED) || word == word_of(serial, STAGE_TOLD)) {
		futex(&s->word, FUTEX_WAIT_PRIVATE, word);
		word = __atomic_load_n(&s->word, __ATOMIC_ACQUIRE);
	}
	/* A signal handler's wait may have taken the slot over, and another thread then. */
	if (word / STAGES != serial ||
	    !__atomic_compare_exchange_n(&s->word, &word, 0, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return true;
	__atomic_compare_exchange_n(&s->tid, &self, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	return word % STAGES == STAGE_ROOM;
}

/* Before another try that may fail at once. */
static void nap(struct growth_try *try)
{
	int saved = errno;

	if (try->nap_us)
		usleep(try->nap_us);
	try->nap_us = try->nap_us ? 2 * try->nap_us : 1000;
	if (try->nap_us > NAP_US)
		try->nap_us = NAP_US;
	errno = saved;
}

void growth_wait(struct growth_try *try)
{
	double now;

	try->more = await_answer();
	now = clock_ms();
	/* Before it failed again, the process may have been out for long. */
	if (now - try->last_ms > QUICK_MS) {
		try->since_ms = now;
		try->nap_us = 0;
	}
	try->last_ms = now;
	try->more &= now - try->since_ms <= VAIN_MS;
	if (try->more)
		nap(try);
}

static struct growth growth_of(const struct growth_slot *s, uint32_t word)
{
	return (struct growth){word / STAGES, __atomic_load_n(&s->dev, __ATOMIC_RELAXED),
			       __atomic_load_n(&s->bytes, __ATOMIC_RELAXED),
			       __atomic_load_n(&s->pinned, __ATOMIC_RELAXED)};
}

static bool has_stage(const struct growth_slot *s, enum stage stage)
{
	uint32_t word = __atomic_load_n(&s->word, __ATOMIC_SEQ_CST);

	return word && word % STAGES == stage;
}

/* Of as many waits like this one others have been told, and have not answered. */
static bool are_told(CUdevice dev, bool pinned)
{
	int count = 0;

	FOR_EACH_SLOT(s) {
		count += has_stage(s, STAGE_TOLD) &&
			 __atomic_load_n(&s->dev, __ATOMIC_RELAXED) == dev &&
			 __atomic_load_n(&s->pinned, __ATOMIC_RELAXED) == pinned &&
			 !threads_ended(__atomic_load_n(&s->tid, __ATOMIC_RELAXED));
	}
	return count >= MOST_TOLD;
}

/* The wait that began first, of those that others may be told of. */
static struct growth_slot *first_asked(uint32_t *first_word, struct growth *growth)
{
	struct growth_slot *first = NULL;

	FOR_EACH_SLOT(s) {
		uint32_t word = __atomic_load_n(&s->word, __ATOMIC_SEQ_CST);
		struct growth g = growth_of(s, word);

		if (!word || word % STAGES != STAGE_ASKED || (first && word > *first_word) ||
		    are_told(g.dev, g.pinned))
			continue;
		first = s;
		*first_word = word;
		*growth = g;
	}
	return first;
}

bool growth_next(struct growth *growth)
{
	struct growth_slot *first;
	uint32_t word = 0;

	/* If it is another wait by now, what was read may be, too. */
	do {
		first = first_asked(&word, growth);
	} while (first && !__atomic_compare_exchange_n(&first->word, &word,
						       word_of(growth->serial, STAGE_TOLD), false,
						       __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	return first;
}

bool growth_is_told(unsigned int serial)
{
	FOR_EACH_SLOT(s) {
		if (__atomic_load_n(&s->word, __ATOMIC_SEQ_CST) == word_of(serial, STAGE_TOLD))
			return !threads_ended(__atomic_load_n(&s->tid, __ATOMIC_RELAXED));
	}
	return false;
}

void growth_untold(void)
{
	FOR_EACH_SLOT(s) {
		uint32_t word = __atomic_load_n(&s->word, __ATOMIC_SEQ_CST);

		if (word && word % STAGES == STAGE_TOLD)
			__atomic_compare_exchange_n(&s->word, &word,
						    word_of(word / STAGES, STAGE_ASKED), false,
						    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	}
}

bool growth_waiting(struct growth *growth)
{
	FOR_EACH_SLOT(s) {
		uint32_t word = __atomic_load_n(&s->word, __ATOMIC_ACQUIRE);

		*growth = growth_of(s, word);
		if (word && word % STAGES <= STAGE_TOLD &&
		    !threads_ended(__atomic_load_n(&s->tid, __ATOMIC_RELAXED)))
			return true;
	}
	return false;
}

bool growth_waits(void)
{
	struct growth growth;

	return growth_waiting(&growth);
}

/* @serial 0: whichever waits there. */
static void answer(struct growth_slot *s, uint32_t serial, bool room)
{
	uint32_t word = __atomic_load_n(&s->word, __ATOMIC_ACQUIRE);

	while (word && (!serial || word / STAGES == serial) && word % STAGES <= STAGE_TOLD)
		if (__atomic_compare_exchange_n(
			    &s->word, &word,
			    word_of(word / STAGES, room ? STAGE_ROOM : STAGE_REFUSED), false,
			    __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)) {
			futex(&s->word, FUTEX_WAKE_PRIVATE, INT32_MAX);
			return;
		}
}

void growth_answer(unsigned int serial, bool room)
{
	if (!serial)
		return;
	FOR_EACH_SLOT(s) {
		answer(s, serial, room);
	}
}

void growth_refuse_all(void)
{
	FOR_EACH_SLOT(s) {
		answer(s, 0, false);
	}
}

/* A signal handler that forked may return to a wait. */
static void forget_in_child(void)
{
	wake = NULL;
	FOR_EACH_SLOT(s) {
		s->word = 0;
		s->tid = 0;
	}
}
FORKS_CHILD(forget_in_child);
