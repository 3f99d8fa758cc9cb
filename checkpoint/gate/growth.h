/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_GROWTH_H
#define CUDAW_GROWTH_H
/*
 * Allocations that wait for room: the driver has no memory for them, and others may give some
 * (checkpoint/control/turn/turn.h). Their threads wait outside the gate, so that the process itself can be
 * paused, or give its memory away, meanwhile.
 *
 * A waiting thread may end, run a signal handler that allocates too, or leave by longjmp(). So what
 * it waits for is in a list of slots that are never freed, under a serial that is not used twice. A
 * slot whose owner has ended, or waits anew, is taken over. A thread that finds its slot taken over
 * tries its allocation again, and may then wait again.
 *
 *	program's thread				control thread
 *	growth_ask(), inside the gate			growth_next(): tells others
 *	growth_wait(), outside				growth_answer()
 *
 * No lock is taken. Signal handlers may call all functions.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* Allocations may wait from now on; @wake wakes the control thread. */
void growth_begin(void (*wake)(void));

/* No allocation waits from now on, and those that do try again, and fail. */
void growth_end(void);

/* True if allocations may wait. */
bool growth_is_on(void);

/*
 * An allocation of @bytes on @dev is to wait. @pinned: a stream is captured, so that the process cannot
 * give memory away meanwhile. False: it must not wait, and fails. With true growth_wait() has to
 * follow, outside the gate.
 */
bool growth_ask(CUdevice dev, size_t bytes, bool pinned);

/* The tries of one allocation. */
struct growth_try {
	bool more;                /* it may wait again */
	double since_ms, last_ms; /* clock_ms(): tries fail at once since then; the last answer */
	unsigned int nap_us;      /* before the try, if that answer comes at once, too */
};

#define GROWTH_TRY ((struct growth_try){.more = true})

/*
 * Wait for the answer. Either way the allocation may be tried once more; if try->more is false then, and
 * that fails, it has failed. It is false, too, if others say for 10 s that there is room, and each try
 * fails: it is not GPU memory that is missing, but host memory, or addresses. Such tries come at longer and
 * longer intervals, up to a quarter of a second.
 */
void growth_wait(struct growth_try *try);

struct growth {
	unsigned int serial;
	CUdevice dev;
	size_t bytes;
	bool pinned;
};

/*
 * The next allocation that nobody has been told of. False: there is none now. At most 4 on a GPU, and 4 that
 * are pinned, are told and not answered at once: others come when these are.
 */
bool growth_next(struct growth *growth);

/* Others were told of it, and it still waits for the answer. */
bool growth_is_told(unsigned int serial);

/* Nobody knows any more what was told: growth_next() tells it anew. */
void growth_untold(void);

/* An allocation that waits. False: none does. */
bool growth_waiting(struct growth *growth);
bool growth_waits(void);

/* Let the allocation of @serial try again, or fail. One that does not wait any more is no error. */
void growth_answer(unsigned int serial, bool room);

/* The same for all that wait: they fail, unless one more try succeeds. */
void growth_refuse_all(void);

#endif
