/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOL_ORDERS_H
#define CUDAW_HOOKS_POOL_ORDERS_H
/*
 * The streams in which memory of pools is allocated and freed, the free blocks that wait there, and
 * how far the frees of each stream have passed.
 *
 * A block that is free belongs to the stream in which it was freed, or, once the free has passed, to
 * its pool alone. Blocks are numbered by turns in the order of their frees, over all streams; so one
 * number says which frees of a stream have passed. An event shows that, or a synchronisation.
 *
 * A block that has an allocation again before that is known still belongs to the stream of its last free:
 * cuMemFree() says that no work uses this allocation, and nothing about the earlier one's.
 *
 * Locking: pools_lock (pool_objects.h), which is held across no driver call. The driver must not be
 * asked about a stream or an event while it ends: see orders_stream_ending() and
 * orders_context_ending(). Nor may an event be recorded in a stream that captures: see
 * orders_before_capture().
 */
#include "wrapper/hooks/pool_objects.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct order;
struct waiting;

/*
 * A vector clock: for each of some streams, the frees in it up to a turn come before something. More may do so
 * than are named here. A turn is not given twice; so what a clock says of a stream that has ended is true of
 * the next one that has its object, too.
 */
#define CLOCK_STREAMS 8
struct clock {
	unsigned int count;
	struct {
		struct order *from;
		uint64_t turn;
	} of[CLOCK_STREAMS];
};

/* Names a stream. The default streams are those of a context, or of a context and a thread. */
struct key {
	CUstream stream;
	CUcontext ctx;       /* of a default stream, else NULL */
	unsigned int thread; /* of CU_STREAM_PER_THREAD, else 0 */
	unsigned int zero;
};

/*
 * A stream, in which frees and allocations are ordered. Objects are never freed: that of a stream that
 * has ended is used again once it has no blocks. CU_STREAM_PER_THREAD ends with its thread, which is
 * noticed when another thread uses its own one for the first time.
 */
struct order {
	struct key key;
	CUcontext ctx;
	CUdevice dev;
	pid_t tid;          /* of CU_STREAM_PER_THREAD, else 0 */
	bool served;        /* allocations in it, and free blocks */
	bool apart;         /* CU_STREAM_NON_BLOCKING: it waits for no other stream by itself */
	bool gone;          /* the stream has ended; the order is in no table */
	bool ending;        /* no thread may use the stream or the event from now on */
	bool asking;        /* a thread asks the driver about the stream and the event */
	unsigned int users; /* threads that use it without the lock, for a moment */
	CUevent event;      /* of ctx; NULL: the driver has made none yet */
	CUevent mark;       /* of ctx; unless apart, each free records it first; or NULL */
	uint64_t last;      /* the turn of the last free */
	uint64_t recorded;  /* the frees up to this turn precede the event; 0: it is not recorded */
	uint64_t passed;    /* the frees up to this turn have passed */
	size_t count;       /* blocks whose last free was in it, and is not known to have passed */
	struct clock clock; /* comes before all later work of the stream, by the program's events */
	struct waiting *waiting;
	struct order *next;
	UT_hash_handle hh;
};

/*
 * Which frees of a stream have passed: look; look, and record an event for later; or only record it.
 * In streams that are not apart only a free records events, with ORDER_RECORD.
 */
enum order_effort { ORDER_LOOK, ORDER_LOOK_AND_RECORD, ORDER_RECORD };

/* The key of @stream, with @ctx current. */
struct key order_key(CUstream stream, CUcontext ctx);

extern bool orders_any; /* a stream is known; also read without pools_lock */

/* With pools_lock held; NULL: it is unknown. */
struct order *order_find(const struct key *key);

/* Without pools_lock: learn about a stream. */
void order_learn(CUstream stream, const struct key *key, CUcontext ctx);

/*
 * With pools_lock held: a block of @p for @size bytes that is free in @o; NULL: there is none. And the
 * list of such blocks; NULL: no host memory.
 */
struct pool_block *order_block_find(const struct order *o, const struct pool *p, size_t size);
struct pool_list *order_list(struct order *o, struct pool *p);

/*
 * With pools_lock held: what comes before an event that is recorded in @o now, and what comes before later work
 * of @o from now on.
 */
void order_clock(struct order *o, struct clock *clock);
void order_follow(struct order *o, const struct clock *clock);

/* With pools_lock held: a block of @p for @size bytes whose free comes before later work of @o; NULL: there is none. */
struct pool_block *order_block_before(const struct order *o, const struct pool *p, size_t size);

/*
 * With pools_lock held: @b, in no list, was freed in @o, and is free in @list of it. Or no work uses its
 * allocation any more, and it is free as it was before that. Or it is memory of its stream no more.
 */
void order_put(struct order *o, struct pool_list *list, struct pool_block *b);
void order_put_back(struct pool_block *b);
void order_let_go(struct pool_block *b);

/* With pools_lock held: a thread has used @o without it, and counted itself in its users. */
void order_end_use(struct order *o);

/*
 * Without pools_lock, in a stream in use: make a free an operation of the stream. The legacy stream and
 * the streams that are not apart from it wait for each other's operations. So a free in the one is
 * ordered after earlier work of the others, and their later work after the free, only if there is one.
 */
CUresult order_mark_free(struct order *o);

/* With pools_lock held; releases it meanwhile: learn which frees of @o have passed. */
void order_ask(struct order *o, enum order_effort effort);

/* The same, of the orders with free blocks of @p (NULL: any). */
void orders_ask(const struct pool *p, enum order_effort effort);

/*
 * The same, of a few orders with a free block of @p for @size bytes, until one has passed to the pool:
 * look, and record.
 */
void orders_ask_for(struct pool *p, size_t size);

/*
 * With pools_lock held; releases it meanwhile. A free block of @p for @size bytes, however large it is,
 * whose free has not passed: later work of @o, which is in use, comes after the free. If it was freed in
 * another stream, which @p must allow, that of @o waits for it from now on. NULL: there is none.
 */
struct pool_block *order_block_behind(struct order *o, struct pool *p, size_t size);

/* With pools_lock held: whether frees of @p have not passed. */
bool orders_have(const struct pool *p);

/* With pools_lock held: move the blocks of @p whose frees have passed to the pool. */
void orders_settle(struct pool *p);

/*
 * orders_now() is to be called before a wait of the driver. With pools_lock held, and after the wait's
 * success: the frees up to that turn have passed in the stream with @key, or in @ctx.
 */
uint64_t orders_now(void);
void order_passed(const struct key *key, uint64_t turn);
void orders_context_passed(CUcontext ctx, uint64_t turn);

/*
 * @stream ends in the next call: its free blocks wait for an event from now on. After the call, what
 * the first function returned is to be passed to the second. @lives: the driver has refused.
 */
struct order *orders_stream_ending(CUstream stream);
void orders_stream_ended(struct order *o, bool lives);

/* As frees_context_ending() and frees_context_lives(). */
void orders_context_ending(CUcontext ctx);
void orders_context_lives(CUcontext ctx);

/*
 * A capture on @stream is about to begin, and counts as open (captures.h). Waits a moment until no
 * thread records an event in a stream: it would become part of the capture. For what was freed in
 * @stream, an event is recorded before the capture.
 */
void orders_before_capture(CUstream stream);

/* True if a capture is open, or one ends just now. And how many have begun. */
bool orders_capturing(void);
uint64_t orders_captures(void);

/* A capture ends between the two, whether it counts as open or not. */
void orders_capture_ending(void);
void orders_capture_ended(void);

#endif
