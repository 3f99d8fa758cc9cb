/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_QUOTA_FILE_H
#define CUDAW_QUOTA_FILE_H
/*
 * The account of a job's GPU memory: a file ID.memory of the runtime directory (rundir.h), with a row for each process
 * and GPU.
 *
 * A process keeps the file open from its first row on, so that it finds it again as another user or in another root
 * directory, and has its rows locked by locks of that opening (F_OFD_SETLK in fcntl(2)). They go with the descriptor:
 * with the process, however that ends, and with exec(2). A row that nobody has locked does not count, and is free, in
 * whatever PID namespace its process was. A child of fork() closes the file (quota.c); one that is made without its
 * handlers has the same opening, and the rows count until both have ended.
 *
 * Only who has locked the first byte of a row writes it, and needs no other lock for that; the row counts once all of
 * it is locked. So what a dead process left in a row never counts for its next owner. One more lock, behind all rows, is for those
 * who look and write: of two that ask for the rest at once, one gets it (quota_file_lock()).
 *
 * Whoever can lock all of the file may remove it. A process that ends does so if it was the last one; those that were
 * killed leave theirs to the next process of the user's that opens an account.
 *
 * A program that closes descriptors which it does not know closes the file, too. Then, and until quota_file_open() and
 * quota_file_write(), its memory does not count.
 *
 * Threads: one at a time, under the lock of quota.c. All change errno. They return 0 or a negative errno:
 *
 *	-EAGAIN	another process has the lock
 *	-ESTALE	the file was removed: it is to be opened again
 *	-EBUSY	another process is about to remove the file, and may have been stopped: no row is to be had
 */
#include <stdbool.h>
#include <stddef.h>

struct quota_sum {
	size_t own, others;
	size_t quota; /* 0: no row has one */
};

/*
 * Find the directory, as the process sees it now, unless it is known. All others do so at first. On failure @why is
 * the reason, as in rundir_path().
 */
int quota_file_find(const char **why);

/* Open the account of the job @id, unless it is open. On failure @why is the reason, as in rundir_open(). */
int quota_file_open(const char *id, const char **why);

/* Close it, as before an image of the process is made; its rows do not count from now on. Async-signal-safe. */
void quota_file_close(void);

/*
 * The process ends: remove the file if no other process has it. It stays open, and the rows count until the kernel has
 * ended the process, which frees its memory.
 */
void quota_file_end(void);

/* Of the open file. It does not wait. */
int quota_file_lock(void);
void quota_file_unlock(void);

/* True if the process has a row for its GPU @dev in the open file. */
bool quota_file_has(int dev);

/* Write that the process has @bytes of its GPU @dev, which is named @gpu, in its row there, or in a free one. */
int quota_file_write(int dev, const char *gpu, size_t quota, size_t bytes);

/* Give the row for the GPU @dev up. */
void quota_file_leave(int dev);

/*
 * Add up the rows for the GPU named @gpu in the open file, or in that of the job @id, which is opened for that; nobody
 * has a row in one that is not there. -EXDEV: the process has another root directory or mount namespace by now.
 */
int quota_file_sum(const char *id, const char *gpu, struct quota_sum *sum, const char **why);

#endif
