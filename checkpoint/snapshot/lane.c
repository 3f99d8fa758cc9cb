/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/lane.h"
#include "checkpoint/snapshot/io.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MISSES_MAX 4    /* then one chunk of 17 is compressed */
#define FORGETTING 0.99 /* factor of pack_seconds at each chunk that is not compressed */

void snapshot_lane_init(struct snapshot_lane *lane, uint32_t number)
{
	*lane = (struct snapshot_lane){.number = number, .fd = -1};
}

static int open_file(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		     struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	int fd;

	if (lane->fd >= 0)
		return 0;
	snapshot_name(SNAPSHOT_DATA, lane->number, name);
	fd = snapshot_io_open(lanes->dir, name, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return snapshot_fail(error, fd, "%s: %s", name, strerror(-fd));
	lane->fd = fd;
	return 0;
}

/* Free the slot of a request that is done. Returns 0, or the reason of its failure. */
static int take_done(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		     struct snapshot_request *request, struct snapshot_error *error)
{
	((struct snapshot_slot *)request)->in_flight = false;
	if (request->result < 0)
		return snapshot_fail(error, request->result, "data-%u: writing at %" PRIu64 ": %s",
				     lane->number, request->offset, strerror(-request->result));
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
	request->fd = lane->fd;
	request->data = (char *)data;
	request->size = snapshot_padded(chunk->stored);
	request->offset = lane->size;
	lane->size += request->size;
	slot->in_flight = true;
	snapshot_queue_submit(&lanes->queue, &lane->flight, request);
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
	if (!ret && !failed && lane->fd >= 0 && fsync(lane->fd))
		ret = snapshot_fail(error, -errno, "data-%u: %s", lane->number, strerror(errno));
	return ret;
}

void snapshot_lane_fini(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool kept)
{
	char name[SNAPSHOT_NAME_SIZE];

	snapshot_name(SNAPSHOT_DATA, lane->number, name);
	if (lane->fd >= 0) {
		close(lane->fd);
		if (!kept)
			unlinkat(lanes->dir, name, 0);
	}
	for (size_t i = 0; i < SNAPSHOT_DEPTH_MOST; i++)
		snapshot_io_free_buffer(lane->slots[i].buffer);
	snapshot_io_free_buffer(lane->buffer);
	snapshot_packer_free(&lane->packer);
}
