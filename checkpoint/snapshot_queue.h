/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_QUEUE_H
#define CUDAW_SNAPSHOT_QUEUE_H
/*
 * Requests in flight: what several threads have the disk do while they go on with the next chunk.
 *
 * By io_uring where the kernel has it (5.11) and lets us; else, and where there is one thread only,
 * a request is done by the thread that submits it, which is as many in flight as there are threads.
 * One ring serves all threads: they submit under its lock, and a thread of the queue's own takes
 * what is done, so that it is always known how much the disk still has to do.
 *
 * A ring cannot be in a process image, nor can the kernel's threads behind it, which go when the
 * threads that submitted do. Hence the queue lives no longer than the threads of one snapshot, a
 * thread of the program's or of the engine's never submits, and a child that the program forks
 * meanwhile closes the ring.
 */
#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SNAPSHOT_QUEUE_MOST 32 /* in flight in all, if there are not more threads than half of it */
#define SNAPSHOT_DEPTH_MOST 8  /* of one thread */

struct snapshot_request {
	/* Set by who submits it; offset, size and data are multiples of SNAPSHOT_ALIGN. */
	bool write;
	int fd;
	void *data;
	size_t size;
	uint64_t offset;

	ssize_t result; /* when it is done: bytes, all for a write; or a negative errno */
	struct snapshot_flight *flight;
	struct snapshot_request *next;
};

/* What one thread has in flight, used by that thread alone. */
struct snapshot_flight {
	size_t count;
	struct snapshot_request *done; /* under the queue's lock */
	pthread_cond_t wake;
};

struct snapshot_queue {
	bool ringed;     /* there is a ring */
	bool broken;     /* it takes no more: what is submitted is done by who submits it */
	pthread_t owner; /* whose snapshot_queue_init() it was */
	struct io_uring ring;
	pthread_t reaper;
	pthread_mutex_t lock; /* of all below, and of submitting */
	size_t threads;
	size_t bytes; /* in flight */
	double begin; /* of the time since when there were always some, in seconds */
	size_t done;  /* bytes, in all */
	double busy;  /* and the seconds in which they were */
};

/* For as many threads as will submit requests. It cannot fail: see above. */
void snapshot_queue_init(struct snapshot_queue *queue, size_t threads);

/* When nothing is in flight. */
void snapshot_queue_fini(struct snapshot_queue *queue);

/* How many requests each thread had best have in flight. */
size_t snapshot_queue_depth(const struct snapshot_queue *queue);

void snapshot_flight_init(struct snapshot_flight *flight);
void snapshot_flight_fini(struct snapshot_flight *flight);

/* @request and its data stay until snapshot_queue_take() has returned it. */
void snapshot_queue_submit(struct snapshot_queue *queue, struct snapshot_flight *flight,
			   struct snapshot_request *request);

/*
 * A request of @flight that is done. Where none is: NULL, or, with @wait, the next one; and NULL
 * where none is in flight.
 */
struct snapshot_request *snapshot_queue_take(struct snapshot_queue *queue,
					     struct snapshot_flight *flight, bool wait);

/*
 * Whether each thread may spend @seconds on a chunk of @size bytes without the disk doing less for
 * it: because that has enough to do for four times as long, as some of what is in flight waits for
 * processors, too; or because all threads that do the same are at least twice as fast as the disk.
 * As long as nothing is known of the disk, or of the time, which is 0 then: no.
 */
bool snapshot_queue_spares(struct snapshot_queue *queue, size_t size, double seconds);

#endif
