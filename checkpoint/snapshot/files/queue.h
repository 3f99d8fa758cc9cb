/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_QUEUE_H
#define CUDAW_SNAPSHOT_QUEUE_H
/*
 * Requests in flight: the disk serves them while the threads go on with the next chunk.
 *
 * They use io_uring if the kernel has it and permits it, and the process has no seccomp filter,
 * since a filter may kill a process that calls it. Each thread has a ring, and takes its own
 * completed requests from it. Otherwise, and if there is only one thread, a request is done when it
 * is submitted, so that there are as many in flight as threads.
 *
 * A process image can hold neither a ring nor the kernel's threads behind it, which end with the
 * thread that submitted. Hence a ring lives no longer than its thread; threads of the program and
 * the engine have none; and a child that the program forks meanwhile closes it.
 */
#include "common/system/ownfd.h"

#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SNAPSHOT_QUEUE_MOST 32 /* in flight in all, for at most half as many threads */
#define SNAPSHOT_DEPTH_MOST 4  /* of one thread; with 8, a virtual disk reads a tenth slower */

struct snapshot_request {
	/* Set by the submitter; offset, size and data are multiples of SNAPSHOT_ALIGN. */
	bool write;
	const struct ownfd *file; /* looked at directly before each system call */
	void *data;
	size_t size;
	uint64_t offset;

	/* Once done: bytes, all of them for a write; or a negative errno: -EBADF: the file is closed. */
	ssize_t result;
	struct snapshot_request *next;
};

/* The requests that one thread has in flight. Only that thread uses it. */
struct snapshot_flight {
	bool ringed; /* there is a ring */
	bool broken; /* the ring takes no more: requests are done at once */
	int *child;  /* the ring's place in the list of those that a child closes */
	struct io_uring ring;
	size_t count;
	struct snapshot_request *done; /* done at once and not taken yet */
};

/* The state that all threads of a snapshot share. */
struct snapshot_queue {
	pthread_t owner; /* the thread that called snapshot_queue_init(): it gets no ring */
	size_t threads;
	bool filtered;        /* a system call that the program never makes may end it */
	pthread_mutex_t lock; /* of all below */
	size_t bytes;         /* in flight, as far as threads have seen */
	double begin;         /* of the period in which there are always some, in seconds */
	size_t done;          /* bytes since the last measurement of the rate */
	double busy;          /* the seconds in which they were done */
	double rate;          /* bytes in a second, the recent maximum; 0: not known yet */
};

/* @threads: how many will submit requests. It cannot fail: see above. */
void snapshot_queue_init(struct snapshot_queue *queue, size_t threads);

/* When nothing is in flight. */
void snapshot_queue_fini(struct snapshot_queue *queue);

/* The thread that owns the flight calls this and all functions below. */
void snapshot_flight_init(struct snapshot_queue *queue, struct snapshot_flight *flight);

/* When nothing of it is in flight. */
void snapshot_flight_fini(struct snapshot_flight *flight);

/* The best number of requests for the thread to have in flight. */
size_t snapshot_flight_depth(const struct snapshot_queue *queue,
			     const struct snapshot_flight *flight);

/* @request and its data stay until snapshot_queue_take() has returned it. */
void snapshot_queue_submit(struct snapshot_queue *queue, struct snapshot_flight *flight,
			   struct snapshot_request *request);

/*
 * A completed request of @flight. If there is none: with @wait, the next one that completes,
 * otherwise NULL. NULL if none is in flight.
 */
struct snapshot_request *snapshot_queue_take(struct snapshot_queue *queue,
					     struct snapshot_flight *flight, bool wait);

/*
 * True if each thread may spend @seconds on a chunk of @size bytes without slowing the disk: either
 * the disk has enough work for four times as long (a margin, since some requests in flight wait for
 * processors, too), or all threads that do the same are at least twice as fast as the disk. False
 * as long as the rate of the disk, or the time, which is 0 then, is not known.
 */
bool snapshot_queue_spares(struct snapshot_queue *queue, size_t size, double seconds);

#endif
