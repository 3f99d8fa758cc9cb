/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_LANE_H
#define CUDAW_SNAPSHOT_LANE_H
/*
 * The data file that one thread writes: chunks one behind the other, several of them in flight.
 *
 * Compressing is never to make a snapshot slower than the disk would be without. A chunk is
 * compressed only while the disk has enough to do anyway, or where the threads together compress
 * so much faster than it writes that it never waits for them; else it is stored as it is. What
 * decides is measured: what the disk does, and what the chunks before took. The first chunk of all
 * is compressed to find out. Where chunks do not shrink, ever fewer are tried.
 */
#include "checkpoint/snapshot/codec.h"
#include "checkpoint/snapshot/queue.h"

/* What the lanes of one snapshot share. */
struct snapshot_lanes {
	int dir;
	enum snapshot_codec codec; /* to try: SNAPSHOT_RAW is none */
	size_t *done;              /* bytes of chunks that are stored, added to atomically */
	struct snapshot_queue queue;

	pthread_mutex_t lock; /* of all below */
	bool tried;           /* to compress a chunk */
	double pack_seconds;  /* what that takes; 0: not known yet */
};

struct snapshot_slot {
	struct snapshot_request request;
	char *buffer; /* one chunk's, aligned; NULL: not needed yet */
	bool in_flight;
};

/* Used by one thread. */
struct snapshot_lane {
	uint32_t number;
	int fd;       /* -1: not made yet */
	size_t size;  /* of the file, what is in flight included */
	char *buffer; /* for the thread to have a chunk in; NULL: not needed yet */
	struct snapshot_slot slots[SNAPSHOT_DEPTH_MOST];
	struct snapshot_flight flight; /* made and ended by the thread */
	struct snapshot_packer packer;
	unsigned misses, skip; /* chunks that did not shrink, and how many not to try for it */
};

void snapshot_lane_init(struct snapshot_lane *lane, uint32_t number);

/*
 * Begin to store the 2 MiB at @data, and say where in @chunk; nobody changes them before
 * snapshot_lane_finish(), unless they are in lane->buffer, which is another one afterwards. An
 * error may be that of an earlier chunk. 0 or a negative errno.
 */
int snapshot_lane_put(struct snapshot_lanes *lanes, struct snapshot_lane *lane,
		      struct snapshot_chunk *chunk, const char *data, struct snapshot_error *error);

/*
 * Wait for all that is in flight, and, unless @failed, sync the file. In any case nothing is in
 * flight afterwards. 0 or a negative errno.
 */
int snapshot_lane_finish(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool failed,
			 struct snapshot_error *error);

/* Close and free, and remove the file where it is not to be @kept. */
void snapshot_lane_fini(struct snapshot_lanes *lanes, struct snapshot_lane *lane, bool kept);

#endif
