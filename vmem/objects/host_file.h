/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOST_FILE_H
#define CUDAW_HOST_FILE_H
/*
 * Files in memory (memfd_create(2)), in which the host memory of cuMemCreate() is (host_objects.h). As the driver's
 * descriptors do, theirs pass between processes, and keep the memory until all have closed them. Their name says which
 * files they are, and the NUMA node. They are sealed: none becomes shorter or longer, so that nobody who has mapped one
 * gets a SIGBUS by another process.
 */
#include <stdbool.h>
#include <stddef.h>

/*
 * A file of @size bytes, whose memory is there, of the NUMA node @node if that has enough. Returns its descriptor,
 * close-on-exec. -ENOMEM: there is not so much memory; another negative errno: no such file can be made.
 */
int host_file_make(size_t size, int node);

/* False: @fd is not such a file. */
bool host_file_read(int fd, size_t *size, int *node);

#endif
