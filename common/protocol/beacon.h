/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_BEACON_H
#define CUDAW_BEACON_H
/*
 * beacons: descriptors that a process gives away, and of which it can tell whether anybody still has one.
 *
 * A beacon is a datagram socket whose abstract address nobody can guess. The kernel has the address exactly
 * as long as there is an open descriptor of the socket, whoever has it: by fork(), SCM_RIGHTS,
 * pidfd_getfd(), dup() or exec(), and also in a message that nobody has received yet. So the process that
 * made it needs no descriptor of its own to know: it connects to the address. CRIU restores both.
 *
 * Its data are a message that the socket has sent to itself. Readers look at it and leave it there.
 *
 * An address is one of the network namespace in which the beacon was made. All users see it there, but not
 * the data; one who takes an address after its beacon was closed makes the beacon look held.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct beacon {
	unsigned char id[16];
};

/* Returns the only descriptor, close-on-exec, or a negative errno. */
int beacon_make(const void *data, size_t size, struct beacon *beacon);

/* The number of bytes of its data, of which @size at most are copied. -ENOENT: @fd is no beacon. */
ssize_t beacon_read(int fd, void *data, size_t size);

/* False if no descriptor is left. True also if that cannot be known now. */
bool beacon_is_held(const struct beacon *beacon);

#endif
