/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_LANE_H
#define CUDAW_SNAPSHOT_LANE_H
/*
 * The data file that one thread writes: chunk after chunk, several of them in flight.
 *
 * Compression must never make a snapshot slower than the disk is without it. A chunk is compressed
 * only while the disk has enough other work, or if the threads together compress so much faster
 * than the disk writes that it never waits for them. Otherwise the chunk is stored uncompressed.
 * The decision uses measurements: the rate of the disk, and the time that earlier chunks took. The
 * very first chunk is compressed to measure that. If chunks do not shrink, fewer and fewer are
 * tried.
 */
#include "checkpoint/snapshot/files/codec.h"
#include "checkpoint/snapshot/files/queue.h"
#include "common/system/ownfd.h"

/* The state that the lanes of one snapshot share. */
struct snapshot_lanes {
	const struct ownfd *dir;
	enum snapshot_codec codec; /* to try; SNAPSHOT_RAW: none */
	size_t *done;              /* bytes of stored chunks, added to atomically */
	struct snapshot_queue queue;

	pthread_mutex_t lock; /* of all below */
	bool tried;           /* a chunk was compressed */
	double pack_seconds;  /* the time that takes; 0: not known yet */
};

struct snapshot_slot {
	struct snapshot_request request;
	char *buffer; /* for one chunk, aligned; NULL: not needed yet */
	bool in_flight;
};

/* Used by one thread. */
struct snapshot_lane {
	uint32_t number;
	struct ownfd file; /* none: not made yet */
	size_t size;       /* of the file, chunks in flight included */
	char *buffer;      /* for the thread's next chunk; NULL: not needed yet */
	struct snapshot_slot slots[SNAPSHOT_DEPTH_MOST];
	struct snapshot_flight flight; /* made and ended by the thread */
	struct snapshot_packer packer;
	unsigned misses, skip; /* chunks that did not shrink, and how many chunks to skip for it */
};

void snapshot_lane_init(struct snapshot_lane *lane, uint32_t number);

/*
 * Begin to store the 2 MiB at @data, and put their place in @chunk. They must not change before
 * snapshot_lane_finish(), unless they are in lane->buffer, which is a different buffer afterwards.
 * An error may be that of an earlier chunk. Returns 0 or a negative errno.
 */
int snapshot_lane_put(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		      struct snapshot_chunk *chunk, const char *data, struct snapshot_error *error);

/*
 * Wait for all requests in flight, and, unless @failed, sync the file. In any case nothing is in
 * flight afterwards. Returns 0 or a negative errno.
 */
int snapshot_lane_finish(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool failed,
			 struct snapshot_error *error);

/* Close the file and free the lane. Removes the file unless it is @kept. */
void snapshot_lane_fini(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool kept);

#endif
