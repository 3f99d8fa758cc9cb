/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLAIMS_H
#define CUDAW_CLAIMS_H
/*
 * Host memory that pauses under way have found free and have not taken yet.
 *
 * Processes that pause at the same moment see the same free memory. Each would take it, and
 * together they could take more than there is. So each promises (promises.h) how much it is about
 * to take, on a file of the runtime directory (rundir.h), and counts the promises of the others as
 * gone. The area of a promise is the control group that leaves least: claims of others in that
 * group count against what the group leaves; those of all, against what the machine has.
 *
 * The first byte of the file is locked while a process finds free memory and claims it, so that two
 * do not each see the other's and leave the memory to nobody. A process that was stopped with this
 * lock holds others up for a moment only: they go on without it, since the claims themselves are
 * there to be counted.
 *
 * Where the directory cannot be used, or the file not be locked, a process counts for itself alone.
 * What processes of another user, or with another runtime directory, claim is not seen.
 */
#include <stddef.h>

/*
 * Claim @wanted bytes, or as much as is available above @reserve beyond the claims of others; an
 * earlier claim of this process is replaced. Returns what is available, @reserve included; 0, and
 * an error is logged, where the process has no descriptor or memory left to ask with. One thread at
 * a time, and none in claims_take().
 */
size_t claims_make(size_t wanted, size_t reserve);

/* @bytes of the claim were taken: they are not available to anybody any more. Any thread. */
void claims_take(size_t bytes);

/* What is left of the claim will not be taken. The file is closed. As claims_make(). */
void claims_drop(void);

#endif
