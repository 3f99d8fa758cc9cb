/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SAVING_H
#define CUDAW_SAVING_H
/*
 * Writing a snapshot of the data that a pause takes off the GPU (saved.h). Threads of its own write
 * each chunk as soon as its piece is in host memory, while the next pieces are copied, and while
 * the GPU is given back.
 *
 *	saving_begin()		the directory is locked and has room
 *	saving_start()		writing begins
 *	saving_arrived()	for each piece, by the workers of the transfer
 *	saving_close()		no further piece arrives
 *	saving_is_over()	all is written, or the writing has failed
 *	saving_commit()		the directory has the snapshot
 *	saving_end()
 *
 * Neither side waits for the other in vain: a transfer that fails ends the threads that wait for
 * its pieces, by saving_close(); a write that fails or is cancelled sets @stop, which cancels the
 * transfer. The engine's thread makes all calls except saving_arrived(). No driver call is made.
 */
#include "checkpoint/engine/plan.h"
#include "checkpoint/snapshot/write.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct saved;
struct snapshot_facts;
struct fetch_place;

struct saving {
	const struct saved *saved;
	const struct snapshot_plan *plan;
	const bool *cancel; /* set by others: give up */
	struct snapshot_writer *writer;
	struct snapshot_source source;
	/* For @source. The entries of a piece are written before it counts as arrived. */
	struct snapshot_region *regions;
	struct snapshot_run *runs;
	struct hash128 *digests;

	pthread_t thread;
	bool threaded;   /* false: the engine's thread writes, in saving_is_over() */
	double start_ms; /* clock_ms() */
	size_t done;     /* bytes written, to be read atomically */
	bool stop;       /* the transfer is no longer of use; written atomically */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	bool *arrived; /* each granule */
	bool lost;     /* no further piece arrives, and those that have arrived are of no use */
	bool over;
	int result; /* once it is over: 0 or a negative errno, with @error */
	double ms;  /* that it took */
	struct snapshot_error error;
};

/*
 * @saved has its lists and, if digests will be taken, their kernels. At most @bytes will be
 * written. 0, to be undone by saving_end(), or a negative errno, with nothing to undo.
 */
int saving_begin(struct saving *saving, const struct saved *saved, const struct snapshot_plan *plan,
		 size_t bytes, const bool *cancel, struct snapshot_error *error);

void saving_start(struct saving *saving);

/* @piece is in host memory, with its slots and digests. For transfer.arrived. */
void saving_arrived(void *saving, size_t piece);

/* @all: the other pieces have arrived as well; false: the snapshot is given up. */
void saving_close(struct saving *saving, bool all);

/* After saving_close(). Waits at most @wait_ms, unless no thread could be started. */
bool saving_is_over(struct saving *saving, double wait_ms);

/*
 * When it is over. 0 or a negative errno, that of the write if it failed, with saving->error. On
 * success @totals and @place are set, and @place is locked unless an image will be added.
 */
int saving_commit(struct saving *saving, const struct snapshot_facts *facts,
		  struct fetch_place *place, struct snapshot_totals *totals);

/* After saving_close(), in any case. A snapshot that is not committed is removed. */
void saving_end(struct saving *saving);

#endif
