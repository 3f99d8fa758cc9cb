/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_IO_H
#define CUDAW_SNAPSHOT_IO_H
/*
 * Reading and writing a snapshot's data past the page cache, which would cost a copy and, for tens
 * of GiB, everybody else's cached files.
 *
 * Each thread has a file of its own to write, and some requests of 2 MiB in flight
 * (queue.h).
 */
#include "checkpoint/snapshot/format.h"

#include <sys/types.h>

#define SNAPSHOT_IO_THREADS 16

/*
 * Open a data file, past the page cache where the file system can; never through a symbolic link.
 * A descriptor or a negative errno.
 */
int snapshot_io_open(int dir, const char *name, int flags);

/* Memory for one chunk, aligned for direct I/O. NULL: out of memory. */
char *snapshot_io_buffer(void);
void snapshot_io_free_buffer(char *buffer);

/*
 * Write or read @size bytes at @offset, multiples of SNAPSHOT_ALIGN. Writing returns 0 or a
 * negative errno; reading the bytes found, which are fewer only at the end of the file, or a
 * negative errno.
 */
int snapshot_io_write(int fd, const void *data, size_t size, uint64_t offset);
ssize_t snapshot_io_read(int fd, void *data, size_t size, uint64_t offset);

/*
 * Read the whole of a small file, refusing what is larger than @most or no file. *@data is to be
 * freed; a zero follows its *@size bytes. 0 or a negative errno.
 */
int snapshot_io_read_file(int dir, const char *name, size_t most, char **data, size_t *size,
			  struct snapshot_error *error);

/* Make or replace a small file, synced. 0 or a negative errno. */
int snapshot_io_write_file(int dir, const char *name, const void *data, size_t size,
			   struct snapshot_error *error);

#endif
