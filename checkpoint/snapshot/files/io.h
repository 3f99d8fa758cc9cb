/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SNAPSHOT_IO_H
#define CUDAW_SNAPSHOT_IO_H
/*
 * Reading and writing a snapshot's data past the page cache. The cache would cost a copy and, for
 * tens of GiB, the cached files of all other programs.
 *
 * Each thread writes a file of its own, with some requests of 2 MiB in flight (queue.h).
 */
#include "checkpoint/snapshot/format.h"
#include "common/system/ownfd.h"

#include <sys/types.h>

#define SNAPSHOT_IO_THREADS 16

/*
 * Open a data file, past the page cache if the file system can do that, and never through a
 * symbolic link. Returns a descriptor or a negative errno.
 */
int snapshot_io_open(int dir, const char *name, int flags);

/* Memory for one chunk, aligned for direct I/O. NULL if out of memory. */
char *snapshot_io_buffer(void);
void snapshot_io_free_buffer(char *buffer);

/*
 * Write or read @size bytes at @offset, multiples of SNAPSHOT_ALIGN. Writing returns 0 or a
 * negative errno. Reading returns the bytes read, which are fewer only at the end of the file, or a
 * negative errno. -EBADF: the program has closed the file.
 */
int snapshot_io_write(const struct ownfd *file, const void *data, size_t size, uint64_t offset);
ssize_t snapshot_io_read(const struct ownfd *file, void *data, size_t size, uint64_t offset);

/*
 * Read a whole small file. It is refused if it is larger than @most or not a regular file. The
 * caller frees *@data; a zero follows its *@size bytes. Returns 0 or a negative errno.
 */
int snapshot_io_read_file(int dir, const char *name, size_t most, char **data, size_t *size,
			  struct snapshot_error *error);

/* Make or replace a small file, and sync it. Returns 0 or a negative errno. */
int snapshot_io_write_file(int dir, const char *name, const void *data, size_t size,
			   struct snapshot_error *error);

#endif
