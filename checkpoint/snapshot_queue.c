/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot_queue.h"
#include "checkpoint/snapshot_io.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KNOWN_BYTES  (16UL << 20) /* that make a rate */
#define WORK_MARGIN  4
#define SPEED_MARGIN 2

/* The ring of the snapshot that is being written or read, for the children of a fork(). */
static int ring_fd = -1;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The lock is held. */
static void count_submitted(struct snapshot_queue *q, const struct snapshot_request *r)
{
	if (!q->bytes)
		q->begin = now();
	q->bytes += r->size;
}

static void count_done(struct snapshot_queue *q, const struct snapshot_request *r)
{
	double end = now();

	q->bytes -= r->size;
	q->done += r->size;
	q->busy += end - q->begin;
	q->begin = end;
}

static void finish(struct snapshot_queue *q, struct snapshot_request *r, ssize_t result)
{
	r->result = result;
	r->next = r->flight->done;
	r->flight->done = r;
	count_done(q, r);
	pthread_cond_signal(&r->flight->wake);
}

/* Takes what is done until it finds the request that stands for the end. */
static void *reap_main(void *arg)
{
	struct snapshot_queue *q = arg;
	struct __kernel_timespec second = {.tv_sec = 1};
	struct io_uring_cqe *cqe;
	bool end = false;

	while (!end) {
		/* A ring that takes no more is not told of the end: it looks once a second. */
		if (io_uring_wait_cqe_timeout(&q->ring, &cqe, &second)) {
			pthread_mutex_lock(&q->lock);
			end = q->broken && !q->threads;
			pthread_mutex_unlock(&q->lock);
			continue;
		}
		pthread_mutex_lock(&q->lock);
		if (cqe->user_data)
			finish(q, io_uring_cqe_get_data(cqe), cqe->res);
		else
			end = true;
		pthread_mutex_unlock(&q->lock);
		io_uring_cqe_seen(&q->ring, cqe);
	}
	return NULL;
}

static void close_in_child(void)
{
	int fd = __atomic_exchange_n(&ring_fd, -1, __ATOMIC_RELAXED);

	if (fd >= 0)
		close(fd);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, close_in_child);
}

static bool open_ring(struct snapshot_queue *q)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	/* Whatever the reason is why not, it is no error. */
	if (q->threads < 2 || io_uring_queue_init(2 * SNAPSHOT_QUEUE_MOST, &q->ring, 0))
		return false;
	if (!(q->ring.features & IORING_FEAT_EXT_ARG) || io_uring_ring_dontfork(&q->ring) ||
	    pthread_create(&q->reaper, NULL, reap_main, q)) {
		io_uring_queue_exit(&q->ring);
		return false;
	}
	pthread_once(&once, watch_forks);
	__atomic_store_n(&ring_fd, q->ring.ring_fd, __ATOMIC_RELAXED);
	return true;
}

void snapshot_queue_init(struct snapshot_queue *q, size_t threads)
{
	*q = (struct snapshot_queue){.threads = threads, .owner = pthread_self()};
	pthread_mutex_init(&q->lock, NULL);
	q->ringed = open_ring(q);
}

/* The lock is held. NULL stands for the end. False: it is not submitted. */
static bool submit(struct snapshot_queue *q, struct snapshot_request *r)
{
	struct io_uring_sqe *sqe = NULL;

	if (q->ringed && !q->broken && (!r || !pthread_equal(pthread_self(), q->owner)))
		sqe = io_uring_get_sqe(&q->ring);
	if (!sqe)
		return false;
	if (!r)
		io_uring_prep_nop(sqe);
	else if (r->write)
		io_uring_prep_write(sqe, r->fd, r->data, r->size, r->offset);
	else
		io_uring_prep_read(sqe, r->fd, r->data, r->size, r->offset);
	io_uring_sqe_set_data(sqe, r);
	/* A request that is not taken stays in the ring, and must not be taken later. */
	q->broken = io_uring_submit(&q->ring) != 1;
	return !q->broken;
}

void snapshot_queue_fini(struct snapshot_queue *q)
{
	if (q->ringed) {
		pthread_mutex_lock(&q->lock);
		q->threads = 0;
		submit(q, NULL);
		pthread_mutex_unlock(&q->lock);
		pthread_join(q->reaper, NULL);
		__atomic_store_n(&ring_fd, -1, __ATOMIC_RELAXED);
		io_uring_queue_exit(&q->ring);
	}
	pthread_mutex_destroy(&q->lock);
}

size_t snapshot_queue_depth(const struct snapshot_queue *q)
{
	size_t each = SNAPSHOT_QUEUE_MOST / (q->threads ? q->threads : 1);

	return q->ringed ? min(each > 2 ? each : 2, SNAPSHOT_DEPTH_MOST) : 1;
}

void snapshot_flight_init(struct snapshot_flight *f)
{
	memset(f, 0, sizeof(*f));
	pthread_cond_init(&f->wake, NULL);
}

void snapshot_flight_fini(struct snapshot_flight *f)
{
	pthread_cond_destroy(&f->wake);
}

/* What is left of @r after @done bytes of it, here and now. */
static ssize_t do_rest(const struct snapshot_request *r, size_t done)
{
	char *data = (char *)r->data + done;
	ssize_t ret;

	if (r->write)
		ret = snapshot_io_write(r->fd, data, r->size - done, r->offset + done);
	else
		ret = snapshot_io_read(r->fd, data, r->size - done, r->offset + done);
	if (ret < 0)
		return ret;
	return r->write ? (ssize_t)r->size : (ssize_t)done + ret;
}

void snapshot_queue_submit(struct snapshot_queue *q, struct snapshot_flight *f,
			   struct snapshot_request *r)
{
	ssize_t ret;
	bool submitted;

	r->flight = f;
	f->count++;
	pthread_mutex_lock(&q->lock);
	count_submitted(q, r);
	submitted = submit(q, r);
	pthread_mutex_unlock(&q->lock);
	if (submitted)
		return;
	ret = do_rest(r, 0);
	pthread_mutex_lock(&q->lock);
	finish(q, r, ret);
	pthread_mutex_unlock(&q->lock);
}

struct snapshot_request *snapshot_queue_take(struct snapshot_queue *q, struct snapshot_flight *f,
					     bool wait)
{
	struct snapshot_request *r;

	if (!f->count)
		return NULL;
	pthread_mutex_lock(&q->lock);
	while (!f->done && wait)
		pthread_cond_wait(&f->wake, &q->lock);
	r = f->done;
	if (r)
		f->done = r->next;
	pthread_mutex_unlock(&q->lock);
	if (!r)
		return NULL;
	f->count--;
	/* The rest of a short one, or what this file system wants in another way, is done here. */
	if (q->ringed && r->result != (ssize_t)r->size)
		r->result = do_rest(r, r->result > 0 ? r->result : 0);
	return r;
}

bool snapshot_queue_spares(struct snapshot_queue *q, size_t size, double seconds)
{
	double rate;
	bool spares = false;

	pthread_mutex_lock(&q->lock);
	rate = q->done >= KNOWN_BYTES && q->busy > 0 ? q->done / q->busy : 0;
	if (rate > 0 && seconds > 0)
		spares = q->bytes >= WORK_MARGIN * seconds * rate ||
			 q->threads * size >= SPEED_MARGIN * seconds * rate;
	pthread_mutex_unlock(&q->lock);
	return spares;
}
