/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOSTMEM_H
#define CUDAW_HOSTMEM_H
/*
 * Host memory for what a pause takes off the GPU: how much there is, and getting it without
 * putting the process at the mercy of the out-of-memory killer.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what is available, this is left to the program and the kernel. */
#define HOSTMEM_RESERVE (256UL << 20)

/*
 * MemAvailable, in bytes; SIZE_MAX where the kernel does not say. This function and the next return
 * 0, and log an error, where the process has no descriptor or memory left to ask with.
 */
size_t hostmem_machine_available(void);

/*
 * What the control groups of this process (v2 or v1, all ancestors) leave, in bytes; SIZE_MAX: no
 * limit. What the kernel can drop, page cache and the pages of MADV_FREE, counts as left.
 */
size_t hostmem_cgroup_available(void);

/*
 * A number for the group that leaves least, the same for all in it; 0 where there is no limit.
 * Returns 0 or a negative errno: no descriptor or memory left to ask with.
 */
int hostmem_group(uint64_t *group);

/*
 * What it could ever take: the smaller of the machine's memory and its control groups' limit; 0
 * where there is no descriptor or memory left to ask with.
 */
size_t hostmem_limit(void);

/*
 * A number of bytes with an optional K, M, G or T; false, and *@size untouched, for anything else,
 * or for more than a size_t holds.
 */
bool hostmem_parse(const char *text, size_t *size);

/*
 * Address space for @size bytes, a multiple of the page, in huge pages where the kernel gives them;
 * no memory is taken before hostmem_populate(). NULL with errno on failure.
 */
void *hostmem_reserve(size_t size);
void hostmem_release(void *start, size_t size);

/* Make the pages of a part of a reservation present. 0 or a negative errno; never a signal. */
int hostmem_populate(void *start, size_t size);

#endif
