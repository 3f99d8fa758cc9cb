/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_QUEUE_H
#define CUDAW_SNAPSHOT_QUEUE_H
/*
 * Requests in flight: what several threads have the disk do while they go on with the next chunk.
 *
 * By io_uring where the kernel has it and lets us, and the process has no seccomp filter, as a
 * filter may kill who asks for it: each thread has a ring, and takes from it itself what is done.
 * Else, and where there is one thread only, a request is done when it is submitted, which is as
 * many in flight as there are threads.
 *
 * A ring cannot be in a process image, nor can the kernel's threads behind it, which go when the
 * thread that submitted does. Hence a ring lives no longer than its thread, a thread of the
 * program's or of the engine's has none, and a child that the program forks meanwhile closes it.
 */
#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SNAPSHOT_QUEUE_MOST 32 /* in flight in all, if there are not more threads than half of it */
#define SNAPSHOT_DEPTH_MOST 4  /* of one thread: a virtual disk reads a tenth slower with 8 */

struct snapshot_request {
	/* Set by who submits it; offset, size and data are multiples of SNAPSHOT_ALIGN. */
	bool write;
	int fd;
	void *data;
	size_t size;
	uint64_t offset;

	ssize_t result; /* when it is done: bytes, all for a write; or a negative errno */
	struct snapshot_request *next;
};

/* What one thread has in flight, used by that thread alone. */
struct snapshot_flight {
	bool ringed; /* there is a ring */
	bool broken; /* it takes no more: what is submitted is done at once */
	int *child;  /* its place in the list of those that a child closes */
	struct io_uring ring;
	size_t count;
	struct snapshot_request *done; /* at once, and not taken yet */
};

/* What all threads of a snapshot share. */
struct snapshot_queue {
	pthread_t owner; /* whose snapshot_queue_init() it was: it gets no ring */
	size_t threads;
	bool filtered;        /* a system call that the program never made may end it */
	pthread_mutex_t lock; /* of all below */
	size_t bytes;         /* in flight, as far as threads have looked */
	double begin;         /* of the time since when there were always some, in seconds */
	size_t done;          /* bytes since the rate was measured last */
	double busy;          /* and the seconds in which they were */
	double rate;          /* bytes in a second, the most of late; 0: not known yet */
};

/* For as many threads as will submit requests. It cannot fail: see above. */
void snapshot_queue_init(struct snapshot_queue *queue, size_t threads);

/* When nothing is in flight. */
void snapshot_queue_fini(struct snapshot_queue *queue);

/* By the thread that it is for, as all that follows. */
void snapshot_flight_init(struct snapshot_queue *queue, struct snapshot_flight *flight);

/* When nothing of it is in flight. */
void snapshot_flight_fini(struct snapshot_flight *flight);

/* How many requests the thread had best have in flight. */
size_t snapshot_flight_depth(const struct snapshot_queue *queue,
			     const struct snapshot_flight *flight);

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
