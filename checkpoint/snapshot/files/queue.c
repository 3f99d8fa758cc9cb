/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/files/queue.h"
#include "checkpoint/snapshot/files/io.h"
#include "common/clock.h"
#include "common/processes/proc.h"
#include "common/size.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * The least that makes a rate. Requests complete in bursts [16 cores, a disk of 1.5 GB/s: 20 GB/s
 * and more by the bytes alone].
 */
#define RATE_BYTES   (16UL << 20)
#define RATE_SECONDS 0.1
#define RATE_KEPT    0.8 /* factor of a rate when the next is smaller */
#define WORK_MARGIN  4
#define SPEED_MARGIN 2
#define RINGS_MOST   64

/* The rings of the snapshot under way, for the children of a fork(): 1 + fd, or 0. */
static int rings[RINGS_MOST];

static void count_submitted(struct snapshot_queue *q, const struct snapshot_request *r)
{
	pthread_mutex_lock(&q->lock);
	if (!q->bytes)
		q->begin = clock_ms() / 1e3;
	q->bytes += r->size;
	pthread_mutex_unlock(&q->lock);
}

/*
 * The rate is that of a disk with enough work at all times, which threads that compress do not give
 * it. So it is the maximum so far, which decays slowly.
 */
static void count_done(struct snapshot_queue *q, const struct snapshot_request *r)
{
	double end = clock_ms() / 1e3;

	pthread_mutex_lock(&q->lock);
	q->bytes -= r->size;
	q->done += r->size;
	q->busy += end - q->begin;
	q->begin = end;
	if (q->done >= RATE_BYTES && q->busy >= RATE_SECONDS) {
		double rate = q->done / q->busy;

		q->rate = rate > q->rate * RATE_KEPT ? rate : q->rate * RATE_KEPT;
		q->done = 0;
		q->busy = 0;
	}
	pthread_mutex_unlock(&q->lock);
}

static void close_in_child(void)
{
	for (size_t i = 0; i < RINGS_MOST; i++) {
		int fd = __atomic_exchange_n(&rings[i], 0, __ATOMIC_RELAXED) - 1;

		if (fd >= 0)
			close(fd);
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, close_in_child);
}

/* A place in the list for @fd; NULL if none is left. */
static int *list_ring(int fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	for (size_t i = 0; i < RINGS_MOST; i++) {
		int none = 0;

		if (__atomic_compare_exchange_n(&rings[i], &none, fd + 1, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return &rings[i];
	}
	return NULL;
}

void snapshot_queue_init(struct snapshot_queue *q, size_t threads)
{
	*q = (struct snapshot_queue){.threads = threads,
				     .owner = pthread_self(),
				     .filtered = host_is_filtered("/proc/thread-self")};
	pthread_mutex_init(&q->lock, NULL);
}

void snapshot_queue_fini(struct snapshot_queue *q)
{
	pthread_mutex_destroy(&q->lock);
}

void snapshot_flight_init(struct snapshot_queue *q, struct snapshot_flight *f)
{
	memset(f, 0, sizeof(*f));
	/* It is not an error if there is no ring, for whatever reason. */
	if (q->threads < 2 || q->filtered || pthread_equal(pthread_self(), q->owner) ||
	    io_uring_queue_init(SNAPSHOT_DEPTH_MOST, &f->ring, 0))
		return;
	f->ringed = true;
	/* liburing makes it, perhaps with a number of the standard streams. */
	f->child = f->ring.ring_fd > STDERR_FILENO ? list_ring(f->ring.ring_fd) : NULL;
	if (!f->child || io_uring_ring_dontfork(&f->ring))
		snapshot_flight_fini(f);
}

void snapshot_flight_fini(struct snapshot_flight *f)
{
	if (f->child)
		__atomic_store_n(f->child, 0, __ATOMIC_RELAXED);
	if (f->ringed)
		io_uring_queue_exit(&f->ring);
	memset(f, 0, sizeof(*f));
}

size_t snapshot_flight_depth(const struct snapshot_queue *q, const struct snapshot_flight *f)
{
	size_t each = SNAPSHOT_QUEUE_MOST / (q->threads ? q->threads : 1);

	return f->ringed ? size_min(each > 2 ? each : 2, SNAPSHOT_DEPTH_MOST) : 1;
}

static bool submit(struct snapshot_flight *f, struct snapshot_request *r)
{
	int fd = ownfd_get(r->file);
	struct io_uring_sqe *sqe =
		f->ringed && !f->broken && fd >= 0 ? io_uring_get_sqe(&f->ring) : NULL;

	if (!sqe)
		return false;
	if (r->write)
		io_uring_prep_write(sqe, fd, r->data, r->size, r->offset);
	else
		io_uring_prep_read(sqe, fd, r->data, r->size, r->offset);
	io_uring_sqe_set_data(sqe, r);
	/*
	 * A request that the kernel refuses stays in the ring, which must not be submitted again.
	 */
	f->broken = io_uring_submit(&f->ring) != 1;
	return !f->broken;
}

/* Do the rest of @r after its first @done bytes, at once. */
static ssize_t do_rest(const struct snapshot_request *r, size_t done)
{
	char *data = (char *)r->data + done;
	ssize_t ret;

	if (r->write)
		ret = snapshot_io_write(r->file, data, r->size - done, r->offset + done);
	else
		ret = snapshot_io_read(r->file, data, r->size - done, r->offset + done);
	if (ret < 0)
		return ret;
	return r->write ? (ssize_t)r->size : (ssize_t)done + ret;
}

void snapshot_queue_submit(struct snapshot_queue *q, struct snapshot_flight *f,
			   struct snapshot_request *r)
{
	f->count++;
	count_submitted(q, r);
	if (submit(f, r))
		return;
	r->result = do_rest(r, 0);
	count_done(q, r);
	r->next = f->done;
	f->done = r;
}

/*
 * Take a request from the ring. A short or refused one (some file systems refuse direct I/O) is
 * completed here.
 */
static struct snapshot_request *take_from_ring(struct snapshot_queue *q, struct snapshot_flight *f,
					       bool wait)
{
	struct snapshot_request *r;
	struct io_uring_cqe *cqe;

	if (!f->ringed)
		return NULL;
	/*
	 * If the program has closed the ring's descriptor, nothing can wait for the ring, but
	 * requests in flight still end.
	 */
	while (io_uring_peek_cqe(&f->ring, &cqe)) {
		if (!wait)
			return NULL;
		if (io_uring_wait_cqe(&f->ring, &cqe))
			sched_yield();
	}
	r = io_uring_cqe_get_data(cqe);
	r->result = cqe->res;
	io_uring_cqe_seen(&f->ring, cqe);
	count_done(q, r);
	if (r->result != (ssize_t)r->size)
		r->result = do_rest(r, r->result > 0 ? r->result : 0);
	return r;
}

struct snapshot_request *snapshot_queue_take(struct snapshot_queue *q, struct snapshot_flight *f,
					     bool wait)
{
	struct snapshot_request *r = f->done;

	if (!f->count)
		return NULL;
	if (r)
		f->done = r->next;
	else
		r = take_from_ring(q, f, wait);
	f->count -= r != NULL;
	return r;
}

bool snapshot_queue_spares(struct snapshot_queue *q, size_t size, double seconds)
{
	bool spares = false;

	pthread_mutex_lock(&q->lock);
	if (q->rate > 0 && seconds > 0)
		spares = q->bytes >= WORK_MARGIN * seconds * q->rate ||
			 q->threads * size >= SPEED_MARGIN * seconds * q->rate;
	pthread_mutex_unlock(&q->lock);
	return spares;
}
