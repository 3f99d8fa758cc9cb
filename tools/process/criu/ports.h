/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PORTS_H
#define CUDAW_PORTS_H
/*
 * The TCP sockets of the processes of an image, as the key "ports" of host.json: an array of objects with "local" and
 * "remote", as tcp_text() has them; "remote" is null if the socket listens.
 */
#include "checkpoint/snapshot/format.h"
#include "common/json_out.h"
#include "tools/process/criu/tcp.h"

#include <jansson.h>

void ports_put(struct json_out *out, const struct tcp_sockets *ports);

/* The reverse. Early writers had no such key. 0 or a negative errno; the caller frees ports->all in any case. */
int ports_read(struct tcp_sockets *ports, const json_t *root, struct snapshot_error *error);

/*
 * Whether this machine has the local addresses, and the ports and connections are free. The kernel keeps those of a
 * connection that has ended for a minute (TIME_WAIT), except connections of the loopback: with @patient wait for that. 0
 * or a negative errno.
 */
int ports_check(const struct tcp_sockets *ports, bool patient, struct snapshot_error *error);

#endif
