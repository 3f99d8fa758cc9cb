/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLAIMS_H
#define CUDAW_CLAIMS_H
/*
 * Host memory that pauses under way have found free but not yet taken.
 *
 * Processes that pause at the same moment see the same free memory. Together they could take more
 * than there is. So each promises (promises.h) how much it is about to take, on a file of the
 * runtime directory (rundir.h), and subtracts the promises of the others. The area of a promise is
 * the control group that leaves least: claims of others in that group count against the group's
 * memory; all claims count against the machine's.
 *
 * A process locks the first byte of the file while it finds free memory and claims it. Without that
 * lock, two processes could each see the other's claim, and both give up the memory. A process that
 * is stopped with this lock delays others only shortly: they go on without the lock, since they
 * still see its claim.
 *
 * If the directory cannot be used, or the file cannot be locked, a process counts only its own
 * claim. Claims of another user, or in another runtime directory, are not seen.
 */
#include <stddef.h>

/*
 * Claim @wanted bytes, or as much as is available above @reserve beyond the claims of others. An
 * earlier claim of this process is replaced. Returns the bytes available, @reserve included; 0,
 * after logging an error, if the process lacks the descriptor or memory to find out. One thread at
 * a time, and none in claims_take().
 */
size_t claims_make(size_t wanted, size_t reserve);

/* @bytes of the claim were taken: they are no longer available to any process. Any thread. */
void claims_take(size_t bytes);

/* Give up the rest of the claim, and close the file. Threads as for claims_make(). */
void claims_drop(void);

#endif
