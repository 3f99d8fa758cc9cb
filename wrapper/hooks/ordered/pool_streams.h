/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_POOL_STREAMS_H
#define CUDAW_HOOKS_POOL_STREAMS_H
/*
 * The streams in which memory of pools is allocated and freed, the free blocks that wait there, and
 * how far the frees of each stream have passed.
 *
 * A block that is free belongs to the stream in which it was freed, or, once the free has passed, to
 * its pool alone. A free gives its block a serial, a number that rises over all streams; so one
 * number says which frees of a stream have passed. An event shows that, or a synchronisation.
 *
 * A block that has an allocation again before that is known still belongs to the stream of its last free:
 * cuMemFree() says that no work uses this allocation, and nothing about the earlier one's.
 *
 * Locking: pools_lock (pool_objects.h), which is held across no driver call. The driver must not be
 * asked about a stream or an event while it ends: see streams_ending() and
 * streams_context_ending(). Nor may an event be recorded in a stream that captures: see
 * streams_before_capture().
 */
#include "wrapper/hooks/ordered/pool_objects.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stream;
struct waiting;

/*
 * A vector clock: for each of some streams, the frees in it up to a serial come before something. More may do so
 * than are named here. A serial is not given twice; so what a clock says of a stream that has ended is true of
 * the next one that has its object, too.
 */
#define CLOCK_STREAMS 8
struct clock {
	unsigned int count;
	struct {
		struct stream *from;
		uint64_t serial;
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
struct stream {
	struct key key;
	CUcontext ctx;
	CUcontext owner; /* the primary context if ctx is a green one, else ctx */
	CUdevice dev;
	pid_t tid;          /* of CU_STREAM_PER_THREAD, else 0 */
	bool served;        /* allocations in it, and free blocks */
	bool apart;         /* CU_STREAM_NON_BLOCKING: it waits for no other stream by itself */
	bool gone;          /* the stream has ended; it is in no table */
	bool ending;        /* no thread may use the stream or the event from now on */
	bool asking;        /* a thread asks the driver about the stream and the event */
	unsigned int users; /* threads that use it without the lock, for a moment */
	unsigned int holds; /* of threads for which the object is not used again */
	CUevent event;      /* of ctx; NULL: the driver has made none yet */
	CUevent mark;       /* of ctx; unless apart, each free records it first; or NULL */
	uint64_t last;      /* the serial of the last free */
	uint64_t
		recorded; /* the frees up to this serial precede the event; 0: it is not recorded */
	uint64_t passed;  /* the frees up to this serial have passed */
	size_t count;     /* blocks whose last free was in it, and is not known to have passed */
	struct clock clock; /* comes before all later work of the stream, by the program's events */
	struct waiting *waiting;
	struct stream *next;
	UT_hash_handle hh;
};

/*
 * Which frees of a stream have passed: look; look, and record an event for later; or only record it.
 * In streams that are not apart only a free records events, with STREAM_RECORD.
 */
enum stream_effort { STREAM_LOOK, STREAM_LOOK_AND_RECORD, STREAM_RECORD };

/* The key of @stream, with @ctx current. */
struct key stream_key(CUstream stream, CUcontext ctx);

extern bool streams_any; /* a stream is known; also read without pools_lock */

/* With pools_lock held; NULL: it is unknown. */
struct stream *stream_find(const struct key *key);

/* Without pools_lock: the device of @stream; false: the driver does not know it, or it has too high a number. */
bool stream_device(CUstream stream, CUdevice *dev);

/*
 * With pools_lock held, which it releases to learn about an unknown stream; @ctx is current, or @stream is its
 * legacy stream. NULL: no host memory, or the driver does not know it. A default stream that is found is one of a
 * context that has not ended, as far as context_gone.h has told.
 */
struct stream *stream_get(CUstream stream, CUcontext ctx);

/*
 * With pools_lock held: a block of @p for @size bytes that is free in @s; NULL: there is none. And the
 * list of such blocks; NULL: no host memory.
 */
struct pool_block *stream_block_find(const struct stream *s, const struct pool *p, size_t size);
struct pool_list *stream_list(struct stream *s, struct pool *p);

/*
 * With pools_lock held: what comes before an event that is recorded in @s now, and what comes before later work
 * of @s from now on.
 */
void stream_clock(struct stream *s, struct clock *clock);
void stream_follow(struct stream *s, const struct clock *clock);

/* With pools_lock held: a block of @p for @size bytes whose free comes before later work of @s; NULL: there is none. */
struct pool_block *stream_block_before(const struct stream *s, const struct pool *p, size_t size);

/*
 * With pools_lock held: @b, in no list, was freed in @s, and is free in @list of it. Or no work uses its
 * allocation any more, and it is free as it was before that. Or it is memory of its stream no more.
 */
void stream_put(struct stream *s, struct pool_list *list, struct pool_block *b);
void stream_put_back(struct pool_block *b);
void stream_let_go(struct pool_block *b);

/* With pools_lock held: a thread has used @s without it, and counted itself in its users. */
void stream_end_use(struct stream *s);

/*
 * Without pools_lock, in a stream in use: make a free an operation of the stream. The legacy stream and
 * the streams that are not apart from it wait for each other's operations. So a free in the one is
 * ordered after earlier work of the others, and their later work after the free, only if there is one.
 */
CUresult stream_mark_free(struct stream *s);

/* With pools_lock held; releases it meanwhile: learn which frees of @s have passed. */
void stream_ask(struct stream *s, enum stream_effort effort);

/* The same, of the streams with free blocks of @p (NULL: any). */
void streams_ask(const struct pool *p, enum stream_effort effort);

/*
 * The same, of a few streams with a free block of @p for @size bytes, until one has passed to the pool:
 * look, and record.
 */
void streams_ask_for(struct pool *p, size_t size);

/*
 * With pools_lock held; releases it meanwhile. A free block of @p for @size bytes, however large it is,
 * whose free has not passed: later work of @s, which is in use, comes after the free. If it was freed in
 * another stream, which @p must allow, that of @s waits for it from now on. NULL: there is none.
 */
struct pool_block *stream_block_behind(struct stream *s, struct pool *p, size_t size);

/* With pools_lock held: whether frees of @p have not passed. */
bool streams_have(const struct pool *p);

/* With pools_lock held: move the blocks of @p whose frees have passed to the pool. */
void streams_settle(struct pool *p);

/*
 * streams_now() is to be called before a wait of the driver. With pools_lock held, and after the wait's
 * success: the frees up to that serial have passed in the stream with @key, or in @ctx.
 */
uint64_t streams_now(void);
void stream_passed(const struct key *key, uint64_t serial);
void streams_context_passed(CUcontext ctx, uint64_t serial);

/*
 * @stream ends in the next call: its free blocks wait for an event from now on. After the call, what
 * the first function returned is to be passed to the second. @lives: the driver has refused.
 */
struct stream *streams_ending(CUstream stream);
void streams_ended(struct stream *s, bool lives);

/*
 * The driver has made @stream, which the program does not know yet: an earlier one with this handle has ended with
 * its context, of which context_gone.h may not have told yet.
 */
void streams_forget(CUstream stream);

/*
 * @ctx (NULL: none) may end in the next call. Its streams and events are left alone from now on, until the
 * second function says that it lives on, or until it has ended (context_gone.h).
 */
void streams_context_ending(CUcontext ctx);
void streams_context_lives(CUcontext ctx);

/*
 * With pools_lock held, which it releases at first, to wait for the threads that use them: the streams of @ctx have
 * ended with it, and so have the blocks of its memory.
 */
void streams_context_ended(CUcontext ctx);

/* The green context @ctx has ended, with its default streams. With its primary context it ends by itself. */
void streams_green_ended(CUcontext ctx);

/*
 * A capture on @stream is about to begin, and counts as open (captures.h). For what was freed in @stream, an
 * event is recorded before the capture. entering_wait() has to follow (entering.h): an event that a thread
 * records in a stream would become part of the capture.
 */
void streams_before_capture(CUstream stream);

/* True if a capture is open, or one ends just now. And how many have begun. */
bool streams_capturing(void);
uint64_t streams_captures(void);

/* A capture ends between the two, whether it counts as open or not. */
void streams_capture_ending(void);
void streams_capture_ended(void);

#endif
