/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SAVING_H
#define CUDAW_SAVING_H
/*
 * A snapshot that is being written of what a pause takes off the GPU (saved.h): each chunk as soon
 * as its piece is in host memory, by threads of its own, while the next pieces are being copied,
 * and the GPU is given back.
 *
 *	saving_begin()		the directory is locked and has room
 *	saving_start()		writing begins
 *	saving_arrived()	for each piece, by the workers of the transfer
 *	saving_close()		nothing more arrives
 *	saving_is_over()	all is written, or will not be
 *	saving_commit()		the directory has the snapshot
 *	saving_end()
 *
 * Neither side waits for the other one in vain: a transfer that fails ends the threads that wait
 * for its pieces, by saving_close(); a write that fails or is cancelled sets @stop, which cancels
 * the transfer. The engine's thread makes all calls, but for saving_arrived(). No driver call is
 * made.
 */
#include "checkpoint/engine/order.h"
#include "checkpoint/snapshot/write.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct saved;
struct snapshot_facts;
struct snapshot_place;

struct saving {
	const struct saved *saved;
	const struct snapshot_order *order;
	const bool *cancel; /* set by others: give up */
	struct snapshot_writer *writer;
	struct snapshot_source source;
	/* What @source names; each piece's part is written before it counts as arrived. */
	struct snapshot_region *regions;
	struct snapshot_run *runs;
	struct hash128 *digests;

	pthread_t thread;
	bool threaded;   /* else the engine's thread writes, in saving_is_over() */
	double start_ms; /* clock_ms() */
	size_t done;     /* bytes written, to be read atomically */
	bool stop;       /* the transfer is of no use any more; written atomically */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	bool *arrived; /* each piece */
	bool lost;     /* nothing arrives any more, nor is what has arrived of use */
	bool over;
	int result; /* once it is over: 0 or a negative errno, with @error */
	double ms;  /* that it took */
	struct snapshot_error error;
};

/*
 * @saved has its lists and, where digests will be taken, their kernels. At the most @bytes are to
 * be written. 0, to be undone by saving_end(), or a negative errno, with nothing to undo.
 */
int saving_begin(struct saving *saving, const struct saved *saved,
		 const struct snapshot_order *order, size_t bytes, const bool *cancel,
		 struct snapshot_error *error);

void saving_start(struct saving *saving);

/* @piece is in host memory, with its slots and digests. A hook of the transfer. */
void saving_arrived(void *saving, size_t piece);

/* @all: the other pieces are there as well; else the snapshot is given up. */
void saving_close(struct saving *saving, bool all);

/* After saving_close(). Waits at most @wait_ms for it, but where no thread could be had. */
bool saving_is_over(struct saving *saving, int wait_ms);

/*
 * When it is over. 0 or a negative errno, which is that of the write where that failed, with
 * saving->error; @totals and @place, locked but for an image, are set on success.
 */
int saving_commit(struct saving *saving, const struct snapshot_facts *facts,
		  struct snapshot_place *place, struct snapshot_totals *totals);

/* Whatever became of it; it is closed. What is not committed is removed. */
void saving_end(struct saving *saving);

#endif
