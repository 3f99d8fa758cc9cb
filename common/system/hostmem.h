/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOSTMEM_H
#define CUDAW_HOSTMEM_H
/*
 * Host memory for the data that a pause takes off the GPU: how much there is, and how to get it
 * without a risk that the out-of-memory killer ends the process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The part of the available memory that is left to the program and the kernel. */
#define HOSTMEM_RESERVE (256UL << 20)

/*
 * MemAvailable, in bytes; SIZE_MAX if the kernel does not report it. This function and the next
 * return 0, and log an error, if the process lacks the descriptor or memory to find out.
 */
size_t hostmem_machine_available(void);

/*
 * The bytes that the control groups of this process (v2 or v1, all ancestors) leave; SIZE_MAX: no
 * limit. Page cache and pages of MADV_FREE count as left, since the kernel can drop them.
 */
size_t hostmem_cgroup_available(void);

/*
 * The bytes that a process gets at once: free memory and page cache, of the machine and of its control groups. The
 * rest of what is available are pages of MADV_FREE, whose reclaim is several times as slow [0.13 to 0.19 GB/s
 * where fresh pages came at 0.4 to 1.2, Linux 6.18, 2 threads in a group at its limit]. 0 after a shortage, which is
 * not logged.
 */
size_t hostmem_ready(void);

/* Whether both leave @bytes, and HOSTMEM_RESERVE. */
bool hostmem_has(size_t bytes);

/*
 * A number for the control group that leaves least, the same for all its processes; 0 if there is
 * no limit. Returns 0, or a negative errno if the process lacks a descriptor or memory.
 */
int hostmem_group(uint64_t *group);

/*
 * The most that this process could ever take: the smaller of the machine's memory and the limit of
 * its control groups; 0 if it lacks the descriptor or memory to find out.
 */
size_t hostmem_limit(void);

/*
 * Reserve address space for @size bytes, a multiple of the page, in huge pages if the kernel gives
 * them. No memory is taken before hostmem_populate(). NULL with errno on failure.
 */
void *hostmem_reserve(size_t size);
void hostmem_release(void *start, size_t size);

/*
 * The same address space for the @size bytes from @at on of the memory file @fd, which has them: they are shared with
 * whoever else maps it. NULL with errno on failure.
 */
void *hostmem_map(int fd, size_t at, size_t size);

/*
 * Put a reservation in the place of a part of what hostmem_map() returned, whose pages leave the file: nobody needs
 * them. False: it is still mapped.
 */
bool hostmem_replace(void *start, size_t size);

/*
 * Make the pages of a part of a reservation present. Returns 0 or a negative errno; raises no
 * signal.
 */
int hostmem_populate(void *start, size_t size);

/* Whether that holds for memory files: before Linux 5.14 a page that cannot be had would be a signal. */
bool hostmem_may_populate_files(void);

#endif
