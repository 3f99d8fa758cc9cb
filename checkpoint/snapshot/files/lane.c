/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/files/lane.h"
#include "checkpoint/snapshot/files/io.h"
#include "common/clock.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MISSES_MAX 4    /* then one chunk of 17 is compressed */
#define FORGETTING 0.99 /* factor of pack_seconds at each chunk that is not compressed */

void snapshot_lane_init(struct snapshot_lane *lane, uint32_t number)
{
	*lane = (struct snapshot_lane){.number = number, .file = OWNFD_NONE};
}

static int open_file(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		     struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	int fd;

	if (lane->file.fd >= 0)
		return 0;
	snapshot_name(SNAPSHOT_DATA, lane->number, name);
	fd = snapshot_io_open(ownfd_get(lanes->dir), name, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return snapshot_fail(error, fd, "%s: %s", name, error_text(-fd));
	ownfd_set(&lane->file, fd);
	return 0;
}

/* The program has closed the file, and another one may have its number. */
static int say_closed(const struct snapshot_lane *lane, struct snapshot_error *error)
{
	return snapshot_fail(error, -EBADF, "data-%u: the program has closed it", lane->number);
}

/* Free the slot of a request that is done. Returns 0, or the reason of its failure. */
static int take_done(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		     struct snapshot_request *request, struct snapshot_error *error)
{
	((struct snapshot_slot *)request)->in_flight = false;
	if (request->result == -EBADF)
		return say_closed(lane, error);
	if (request->result < 0)
		return snapshot_fail(error, request->result, "data-%u: writing at %" PRIu64 ": %s",
				     lane->number, request->offset, error_text(-request->result));
	__atomic_fetch_add(lanes->done, SNAPSHOT_CHUNK, __ATOMIC_RELAXED);
	return 0;
}

/* Put a free slot in *@slot, after waiting for one if necessary. */
static int find_slot(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		     struct snapshot_slot **slot, struct snapshot_error *error)
{
	size_t depth = snapshot_flight_depth(&lanes->queue, &lane->flight);
	struct snapshot_request *done;
	int ret = 0;

	while (!ret && (done = snapshot_queue_take(&lanes->queue, &lane->flight,
						   lane->flight.count == depth)))
		ret = take_done(lanes, lane, done, error);
	for (*slot = lane->slots; (*slot)->in_flight; (*slot)++)
		;
	return ret;
}

static bool is_to_pack(struct snapshot_lanes *lanes, struct snapshot_lane *lane)
{
	bool pack;

	if (lanes->codec == SNAPSHOT_RAW)
		return false;
	if (lane->skip) {
		lane->skip--;
		return false;
	}
	pthread_mutex_lock(&lanes->lock);
	pack = !lanes->tried ||
	       snapshot_queue_spares(&lanes->queue, SNAPSHOT_CHUNK, lanes->pack_seconds);
	lanes->tried = true;
	/* It may have been slow only once, so it is tried again in time. */
	if (!pack)
		lanes->pack_seconds *= FORGETTING;
	pthread_mutex_unlock(&lanes->lock);
	return pack;
}

/*
 * Compress the chunk at @data into the slot's buffer. Returns its bytes; 0: store it uncompressed.
 */
static size_t pack(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		   struct snapshot_slot *slot, const char *data)
{
	double seconds = clock_ms() / 1e3;
	size_t size;

	if (!slot->buffer)
		slot->buffer = snapshot_io_buffer();
	if (!slot->buffer)
		return 0;
	size = snapshot_pack(&lane->packer, lanes->codec, data, slot->buffer);
	seconds = clock_ms() / 1e3 - seconds;
	pthread_mutex_lock(&lanes->lock);
	if (lanes->pack_seconds > 0)
		seconds = (lanes->pack_seconds + seconds) / 2;
	lanes->pack_seconds = seconds;
	pthread_mutex_unlock(&lanes->lock);
	if (size && size < SNAPSHOT_CHUNK / 8 * 7)
		lane->misses = 0;
	else if (lane->misses < MISSES_MAX)
		lane->misses++;
	lane->skip = lane->misses ? 1U << lane->misses : 0;
	return size;
}

int snapshot_lane_put(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		      struct snapshot_chunk *chunk, const char *data, struct snapshot_error *error)
{
	struct snapshot_slot *slot;
	struct snapshot_request *request;
	size_t stored = 0;
	int ret = open_file(lanes, lane, error);

	if (!ret)
		ret = find_slot(lanes, lane, &slot, error);
	if (ret)
		return ret;
	if (is_to_pack(lanes, lane))
		stored = pack(lanes, lane, slot, data);
	chunk->codec = stored ? lanes->codec : SNAPSHOT_RAW;
	chunk->file = lane->number;
	chunk->offset = lane->size;
	chunk->stored = stored ? stored : SNAPSHOT_CHUNK;
	if (stored) {
		memset(slot->buffer + stored, 0, snapshot_padded(stored) - stored);
		data = slot->buffer;
	} else if (data == lane->buffer) {
		lane->buffer = slot->buffer;
		slot->buffer = (char *)data;
	}
	request = &slot->request;
	request->write = true;
	request->file = &lane->file;
	request->data = (char *)data;
	request->size = snapshot_padded(chunk->stored);
	request->offset = lane->size;
	lane->size += request->size;
	slot->in_flight = true;
	snapshot_queue_submit(&lanes->queue, &lane->flight, request);
	return 0;
}

/* All is in the file, and on the disk. */
static int sync_file(struct snapshot_lane *lane, struct snapshot_error *error)
{
	struct stat st;
	int fd = ownfd_get(&lane->file);

	if (fd < 0)
		return say_closed(lane, error);
	if (fsync(fd) || fstat(fd, &st))
		return snapshot_fail(error, -errno, "data-%u: %s", lane->number, error_text(errno));
	if ((size_t)st.st_size != lane->size)
		return snapshot_fail(error, -EIO, "data-%u: expected %zu bytes, found %zu",
				     lane->number, lane->size, (size_t)st.st_size);
	return 0;
}

int snapshot_lane_finish(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool failed,
			 struct snapshot_error *error)
{
	struct snapshot_error ignored;
	struct snapshot_request *done;
	int ret = 0;

	while ((done = snapshot_queue_take(&lanes->queue, &lane->flight, true))) {
		int one = take_done(lanes, lane, done, ret || failed ? &ignored : error);

		if (!ret)
			ret = one;
	}
	if (!ret && !failed && lane->file.fd >= 0)
		ret = sync_file(lane, error);
	return ret;
}

void snapshot_lane_fini(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool kept)
{
	char name[SNAPSHOT_NAME_SIZE];

	snapshot_name(SNAPSHOT_DATA, lane->number, name);
	if (lane->file.fd >= 0 && !kept)
		unlinkat(ownfd_get(lanes->dir), name, 0);
	ownfd_close(&lane->file);
	for (size_t i = 0; i < SNAPSHOT_DEPTH_MOST; i++)
		snapshot_io_free_buffer(lane->slots[i].buffer);
	snapshot_io_free_buffer(lane->buffer);
	snapshot_packer_free(&lane->packer);
}
