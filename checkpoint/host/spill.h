/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SPILL_H
#define CUDAW_SPILL_H
/*
 * The file for the part of a paused job's memory that does not fit in host memory
 * (CUDAW_SPILL_DIR). It has no name, so that it goes away with the process, however that ends. It
 * is read and written past the page cache if the file system can do that; if not, a write waits for
 * the disk. Thread-safe, except opening and closing.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The bytes that the directory's file system, and the largest size of a file, have left for us; 0 if
 * CUDAW_SPILL_DIR is not set, is read-only or is memory (common/system/memory_fs.h).
 */
size_t spill_space(void);

#define SPILL_BUFFER (1UL << 20)

/*
 * Open the file if it is not open, and reserve @size bytes of disk. If the file system cannot reserve, that is an error
 * (-EOPNOTSUPP) with @surely; else a write may find no room. Returns 0 or a negative errno, after an error message that
 * names the directory.
 */
int spill_open(size_t size, bool surely);
void spill_close(void);

/*
 * SPILL_BUFFER bytes for one copy at a time from or to the file, which are taken when it is first opened: when it is
 * read, the control group may be full, and the kernel would end one of its processes for a page. They stay for good,
 * as the driver may still write there after a failure. NULL: it was never opened.
 */
char *spill_buffer(void);

/*
 * Write or read all of [@data, @data + @size) at @offset; data and numbers are multiples of 4 KiB.
 * Returns 0 or a negative errno; -EBADF if the program has closed the file (ownfd.h). Its data is
 * lost then, and a file that now has its number is not touched.
 */
int spill_write(const void *data, size_t size, uint64_t offset);
int spill_read(void *data, size_t size, uint64_t offset);

#endif
