/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLAIMS_H
#define CUDAW_CLAIMS_H
/*
 * Host memory that pauses under way have found free and have not taken yet.
 *
 * Processes that pause at the same moment see the same free memory. Each would take it, and
 * together they could take more than there is. So each notes how much it is about to take in a file
 * of the runtime folder (rundir.h) that all map, and counts what the others noted as gone.
 *
 * The file is an array of slots: process, its start time, control group, bytes. It is changed with
 * its lock held (flock(2)), but for the bytes, which their owner lowers atomically as it takes
 * them. The slot of a process that is no more is free. Where the folder cannot be used, or all
 * slots are taken, a process counts for itself alone. Claims of others in the control group that
 * leaves least count against what that group leaves; those of all, against what the machine has.
 *
 * What processes of another user, or with another runtime folder, claim is not seen.
 */
#include <stddef.h>

/*
 * Claim @wanted bytes, or as much as is available above @reserve beyond the claims of others; an
 * earlier claim of this process is replaced. Returns what is available, @reserve included. One
 * thread at a time, and none in claims_take().
 */
size_t claims_make(size_t wanted, size_t reserve);

/* @bytes of the claim were taken: they are not available to anybody any more. Any thread. */
void claims_take(size_t bytes);

/* What is left of the claim will not be taken. */
void claims_drop(void);

/* The same, and have the file open no more: a process image would want it where it goes on. */
void claims_close(void);

#endif
