/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SPILL_H
#define CUDAW_SPILL_H
/*
 * The file that takes what host memory does not hold of a paused job (CUDAW_SPILL_DIR). It has no
 * name, so that it goes away with the process, however that ends. It is read and written past the
 * page cache where the file system can do that. Thread-safe, but for opening and closing.
 */
#include <stddef.h>
#include <stdint.h>

/* Bytes that the directory's file system has left for us; 0 where CUDAW_SPILL_DIR is not set. */
size_t spill_space(void);

/*
 * Open the file where it is not open, and set @size bytes of disk aside. Returns 0 or a negative
 * errno, after saying which directory.
 */
int spill_open(size_t size);
void spill_close(void);

/*
 * Write or read all of [@data, @data + @size) at @offset; data and numbers are multiples of 4 KiB.
 * Returns 0 or a negative errno; -EBADF where the program has closed the file (ownfd.h): what it
 * had is lost then, and a file that has its number by now is left alone.
 */
int spill_write(const void *data, size_t size, uint64_t offset);
int spill_read(void *data, size_t size, uint64_t offset);

#endif
