/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/read.h"
#include "checkpoint/snapshot/files/codec.h"
#include "checkpoint/snapshot/files/io.h"
#include "checkpoint/snapshot/files/queue.h"
#include "common/text.h"
#include "common/system/hostmem.h"
#include "common/system/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_EVERY 512 /* places, 1 GiB: how often it is asked whether there is host memory */

struct job {
	struct workers workers;
	const struct snapshot_read *what;
	struct snapshot_queue queue;
	pthread_mutex_t lock; /* of error */
	struct snapshot_error *error;
};

struct slot {
	struct snapshot_request request;
	size_t place;
	char *home;   /* where the contents are to stay; NULL: nowhere */
	char *buffer; /* NULL: not needed yet */
	bool in_flight;
};

/*
 * A thread of the job. The places are in the order of files, so that it has one file open at a
 * time.
 */
struct reader {
	struct job *job;
	struct slot slots[SNAPSHOT_DEPTH_MOST];
	struct snapshot_flight flight;
	struct snapshot_unpacker unpacker;
	char *chunk; /* for decompressed data; NULL: not needed yet */
	struct ownfd file;
	uint32_t number; /* of the file */
};

static int need_buffer(char **buffer, struct snapshot_error *error)
{
	if (!*buffer)
		*buffer = snapshot_io_buffer();
	return *buffer ? 0 : snapshot_fail(error, -ENOMEM, "out of memory");
}

static const struct snapshot_chunk *chunk_at(const struct job *job, size_t place)
{
	const struct snapshot_index *index = job->what->index;

	return &index->chunks[index->order[index->places[place]]];
}

static bool has_room(const struct job *job, size_t place)
{
	return place % ROOM_EVERY ||
	       hostmem_has((job->what->index->nplaces - place) * SNAPSHOT_CHUNK);
}

/* Where the contents of @place are to stay; NULL: nowhere. */
static char *find_home(const struct job *job, size_t place)
{
	const struct snapshot_read *what = job->what;
	char *home = what->into ? what->into + place * SNAPSHOT_CHUNK : NULL;

	if (!home || __atomic_load_n(what->full, __ATOMIC_RELAXED))
		return NULL;
	if (has_room(job, place) && !hostmem_populate(home, SNAPSHOT_CHUNK))
		return home;
	__atomic_store_n(what->full, true, __ATOMIC_RELAXED);
	return NULL;
}

static int open_data(struct reader *r, uint32_t number, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	struct stat st;
	int fd;

	ownfd_close(&r->file);
	snapshot_name(SNAPSHOT_DATA, number, name);
	r->number = number;
	fd = snapshot_io_open(r->job->what->dir, name, O_RDONLY);
	if (fd < 0)
		return snapshot_fail(error, fd, "%s: %s", name, error_text(-fd));
	ownfd_set(&r->file, fd);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return snapshot_fail(error, -EBADMSG, "%s: it is not a regular file", name);
	return 0;
}

static int check_hash(const struct snapshot_chunk *chunk, const char *data,
		      struct snapshot_error *error)
{
	char expected[HASH_TEXT_SIZE], found[HASH_TEXT_SIZE];
	struct hash128 hash = hash_bytes(data, SNAPSHOT_CHUNK);

	if (hash_equal(hash, chunk->hash))
		return 0;
	hash_text(chunk->hash, expected);
	hash_text(hash, found);
	return snapshot_fail(error, -EBADMSG,
			     "data-%u: damaged at %" PRIu64 " (0x%" PRIx64
			     " on the GPU): expected checksum %s, found %s",
			     chunk->file, chunk->offset, chunk->address, expected, found);
}

/* Zeros follow a compressed chunk, up to the place at which the next chunk may begin. */
static int check_padding(const struct slot *slot, const struct snapshot_chunk *chunk,
			 struct snapshot_error *error)
{
	const char *stored = slot->request.data;

	for (ssize_t at = chunk->stored; at < slot->request.result; at++)
		if (stored[at])
			return snapshot_fail(error, -EBADMSG,
					     "data-%u: damaged at %" PRIu64
					     ": expected zeros behind a chunk",
					     chunk->file, chunk->offset + at);
	return 0;
}

/* Put the checked contents of @chunk, whose stored form is in @slot, in *@data. */
static int get_chunk(struct reader *r, const struct slot *slot, const struct snapshot_chunk *chunk,
		     const char **data, struct snapshot_error *error)
{
	char *home = slot->home;
	const char *why;
	int ret;

	*data = slot->request.data;
	if (chunk->codec == SNAPSHOT_RAW)
		return check_hash(chunk, *data, error);
	ret = check_padding(slot, chunk, error);
	if (!ret && !home)
		ret = need_buffer(&r->chunk, error);
	if (ret)
		return ret;
	home = home ? home : r->chunk;
	*data = home;
	ret = snapshot_unpack(&r->unpacker, chunk->codec, slot->request.data, chunk->stored, home,
			      &why);
	if (ret == -ENOMEM)
		return snapshot_fail(error, ret, "out of memory");
	if (ret)
		return snapshot_fail(error, ret,
				     "data-%u: damaged at %" PRIu64 " (0x%" PRIx64
				     " on the GPU): expected %u bytes of %s: %s",
				     chunk->file, chunk->offset, chunk->address, chunk->stored,
				     snapshot_codec_name(chunk->codec), why);
	return check_hash(chunk, *data, error);
}

static int give(const struct snapshot_read *what, const struct snapshot_chunk *chunk,
		const char *data, struct snapshot_error *error)
{
	int ret = what->take ? what->take(what->arg, chunk, data, error) : 0;

	if (!ret && what->done)
		__atomic_fetch_add(what->done, SNAPSHOT_CHUNK, __ATOMIC_RELAXED);
	return ret;
}

/* Give the data that a request has read to all chunks of its place. */
static int take_place(struct reader *r, struct snapshot_request *request,
		      struct snapshot_error *error)
{
	struct slot *slot = (struct slot *)request;
	const struct snapshot_read *what = r->job->what;
	const uint32_t *places = what->index->places;
	const struct snapshot_chunk *chunk = chunk_at(r->job, slot->place);
	const char *data;
	int ret;

	slot->in_flight = false;
	if (request->result < 0)
		return snapshot_fail(error, request->result, "data-%u: %s", chunk->file,
				     error_text(-request->result));
	if (request->result < chunk->stored)
		return snapshot_fail(error, -EBADMSG,
				     "data-%u: truncated: expected %u bytes at %" PRIu64
				     ", found %zd",
				     chunk->file, chunk->stored, chunk->offset, request->result);
	ret = get_chunk(r, slot, chunk, &data, error);
	for (uint32_t j = places[slot->place]; !ret && j < places[slot->place + 1]; j++)
		ret = give(what, &what->index->chunks[what->index->order[j]], data, error);
	return ret;
}

/* Take completed requests, and wait until at most @most are in flight. */
static int take_done(struct reader *r, size_t most, struct snapshot_error *error)
{
	struct snapshot_request *request;
	int ret = 0;

	while (!ret &&
	       (request = snapshot_queue_take(&r->job->queue, &r->flight, r->flight.count > most)))
		ret = take_place(r, request, error);
	return ret;
}

/* Where a request reads the stored form of @place to. */
static int find_room(struct reader *r, struct slot *slot, size_t place,
		     struct snapshot_error *error)
{
	int ret;

	slot->home = find_home(r->job, place);
	if (slot->home && chunk_at(r->job, place)->codec == SNAPSHOT_RAW) {
		slot->request.data = slot->home;
		return 0;
	}
	ret = need_buffer(&slot->buffer, error);
	slot->request.data = slot->buffer;
	return ret;
}

static int ask_for(struct reader *r, size_t place, struct snapshot_error *error)
{
	const struct snapshot_chunk *chunk = chunk_at(r->job, place);
	struct slot *slot = r->slots;
	bool opened = r->file.fd >= 0 && r->number == chunk->file;
	int ret = take_done(r, opened ? snapshot_flight_depth(&r->job->queue, &r->flight) - 1 : 0,
			    error);

	if (!ret && !opened)
		ret = open_data(r, chunk->file, error);
	while (slot->in_flight)
		slot++;
	if (!ret)
		ret = find_room(r, slot, place, error);
	if (ret)
		return ret;
	slot->place = place;
	slot->in_flight = true;
	slot->request.file = &r->file;
	slot->request.size = snapshot_padded(chunk->stored);
	slot->request.offset = chunk->offset;
	snapshot_queue_submit(&r->job->queue, &r->flight, &slot->request);
	return 0;
}

static void reader_fini(struct reader *r)
{
	while (snapshot_queue_take(&r->job->queue, &r->flight, true))
		;
	ownfd_close(&r->file);
	for (size_t i = 0; i < SNAPSHOT_DEPTH_MOST; i++)
		snapshot_io_free_buffer(r->slots[i].buffer);
	snapshot_io_free_buffer(r->chunk);
	snapshot_unpacker_free(&r->unpacker);
	snapshot_flight_fini(&r->flight);
}

static void *read_main(void *arg)
{
	struct job *job = arg;
	struct reader r = {.job = job, .file = OWNFD_NONE};
	struct snapshot_error error;
	int ret = 0;
	size_t place;

	snapshot_flight_init(&job->queue, &r.flight);
	while (!ret && workers_next(&job->workers, &place))
		ret = ask_for(&r, place, &error);
	if (!ret)
		ret = take_done(&r, 0, &error);
	if (ret) {
		/* Only the first failure is reported. */
		pthread_mutex_lock(&job->lock);
		if (!job->workers.result)
			*job->error = error;
		workers_fail(&job->workers, ret);
		pthread_mutex_unlock(&job->lock);
	}
	reader_fini(&r);
	return NULL;
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
	job.workers.count = index->nplaces;
	snapshot_fail(error, 0, "cancelled");
	snapshot_queue_init(&job.queue, workers_threads(&job.workers, SNAPSHOT_IO_THREADS));
	ret = workers_run(&job.workers, SNAPSHOT_IO_THREADS, read_main, &job);
	snapshot_queue_fini(&job.queue);
	return ret;
}
