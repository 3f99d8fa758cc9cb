/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot_read.h"
#include "checkpoint/snapshot_io.h"
#include "checkpoint/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct job {
	struct workers workers;
	const struct snapshot_read *what;
	/* Chunks of one place, and those of zeros, are taken together: here the places begin. */
	uint32_t *places;
	pthread_mutex_t lock; /* of error */
	struct snapshot_error *error;
};

/* A thread of it. The places are in the order of files, so that one at a time is open. */
struct reader {
	struct job *job;
	char *buffer;
	int fd;
	uint32_t file; /* that fd is */
};

static int open_data(struct reader *r, uint32_t file, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	struct stat st;

	if (r->fd >= 0 && r->file == file)
		return 0;
	if (r->fd >= 0)
		close(r->fd);
	snapshot_name(SNAPSHOT_DATA, file, name);
	r->file = file;
	r->fd = snapshot_io_open(r->job->what->dir, name, O_RDONLY);
	if (r->fd < 0)
		return snapshot_fail(error, r->fd, "%s: %s", name, strerror(-r->fd));
	if (fstat(r->fd, &st) || !S_ISREG(st.st_mode))
		return snapshot_fail(error, -EBADMSG, "%s: it is no file", name);
	return 0;
}

/* The contents of @chunk in the buffer, checked. */
static int load_chunk(struct reader *r, const struct snapshot_chunk *chunk,
		      struct snapshot_error *error)
{
	char expected[HASH_TEXT_SIZE], found[HASH_TEXT_SIZE];
	struct hash128 hash;
	ssize_t n;
	int ret = open_data(r, chunk->file, error);

	if (ret)
		return ret;
	n = snapshot_io_read(r->fd, r->buffer, chunk->stored, chunk->offset);
	if (n < 0)
		return snapshot_fail(error, n, "data-%u: %s", chunk->file, strerror(-n));
	if (n < chunk->stored)
		return snapshot_fail(error, -EBADMSG,
				     "data-%u: truncated: expected %u bytes at %" PRIu64
				     ", found %zd",
				     chunk->file, chunk->stored, chunk->offset, n);
	hash = hash_bytes(r->buffer, SNAPSHOT_CHUNK);
	if (hash_equal(hash, chunk->hash))
		return 0;
	hash_text(chunk->hash, expected);
	hash_text(hash, found);
	return snapshot_fail(error, -EBADMSG,
			     "data-%u: damaged at %" PRIu64 " (0x%" PRIx64
			     " on the GPU): expected checksum %s, found %s",
			     chunk->file, chunk->offset, chunk->address, expected, found);
}

static int give(const struct snapshot_read *what, const struct snapshot_chunk *chunk,
		const char *data, struct snapshot_error *error)
{
	int ret = what->take ? what->take(what->arg, chunk, data, error) : 0;

	if (!ret && what->done)
		__atomic_fetch_add(what->done, SNAPSHOT_CHUNK, __ATOMIC_RELAXED);
	return ret;
}

static int take_place(struct reader *r, size_t i, struct snapshot_error *error)
{
	const struct snapshot_read *what = r->job->what;
	const struct snapshot_index *index = what->index;
	const uint32_t *places = r->job->places;
	int ret = load_chunk(r, &index->chunks[index->order[places[i]]], error);

	for (uint32_t j = places[i]; !ret && j < places[i + 1]; j++)
		ret = give(what, &index->chunks[index->order[j]], r->buffer, error);
	return ret;
}

static void *read_main(void *arg)
{
	struct job *job = arg;
	struct reader r = {.job = job, .fd = -1, .buffer = snapshot_io_buffer()};
	struct snapshot_error error = {"out of memory"};
	int ret = r.buffer ? 0 : -ENOMEM;
	size_t i;

	while (!ret && workers_next(&job->workers, &i))
		ret = take_place(&r, i, &error);
	if (ret) {
		/* The first to fail is the one that is told about. */
		pthread_mutex_lock(&job->lock);
		if (!job->workers.result)
			*job->error = error;
		workers_fail(&job->workers, ret);
		pthread_mutex_unlock(&job->lock);
	}
	if (r.fd >= 0)
		close(r.fd);
	free(r.buffer);
	return NULL;
}

/* Where the places begin in the order, with its end behind the last; their number in @count. */
static uint32_t *find_places(const struct snapshot_index *index, size_t *count)
{
	uint32_t *places = malloc((index->norder + 1) * sizeof(*places));

	*count = 0;
	for (size_t i = 0; places && i < index->norder; i++) {
		const struct snapshot_chunk *c = &index->chunks[index->order[i]];
		const struct snapshot_chunk *before = i ? &index->chunks[index->order[i - 1]] : c;

		if (!i || c->file != before->file || c->offset != before->offset)
			places[(*count)++] = i;
	}
	if (places)
		places[*count] = index->norder;
	return places;
}

int snapshot_read(const struct snapshot_read *what, struct snapshot_error *error)
{
	const struct snapshot_index *index = what->index;
	struct job job = {.what = what, .error = error, .lock = PTHREAD_MUTEX_INITIALIZER};
	int ret = 0;

	for (size_t i = 0; !ret && i < index->nchunks; i++)
		if (index->chunks[i].codec == SNAPSHOT_ZERO)
			ret = give(what, &index->chunks[i], NULL, error);
	if (ret)
		return ret;
	job.workers.cancel = what->cancel;
	job.places = find_places(index, &job.workers.count);
	if (!job.places)
		return snapshot_fail(error, -ENOMEM, "out of memory");
	snapshot_fail(error, 0, "cancelled");
	ret = workers_run(&job.workers, SNAPSHOT_IO_THREADS, read_main, &job);
	free(job.places);
	return ret;
}
